"""An S3-compatible server for tests, and a proxy in front of it that injects faults."""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

BUCKET = "lvp-tests"
SECRET = "planted-wJalrXUtnFEMI/K7MDENG"
KEY = "PLANTEDAKIAIOSFODNN7"


@dataclass
class Request:
    """A request to the server."""

    method: str
    name: str  # of the object, without the bucket; "" for a listing
    query: str
    conditions: dict[str, str]  # If-Match and If-None-Match
    status: int = 0  # of the answer; 0 if it was cut


@dataclass
class Proxy:
    """Forwards requests to the server, except those to which `fault` gives another answer.

    `fault(request)` returns None, a status with an error code ("503 SlowDown"), "cut request" (the connection ends
    within the body), "cut answer" (the server gets the request, its answer is lost) or "hide NAME" (listings omit the
    objects whose names contain NAME).
    """

    upstream: int  # port of the server
    fault: Callable[[Request], str | None] = lambda request: None
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    def __enter__(self) -> "Proxy":
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                proxy.answer(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        url = urllib.parse.urlsplit(handler.path)
        name = urllib.parse.unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/")
        wanted = {k: v for k, v in handler.headers.items() if k.lower() in ("if-match", "if-none-match")}
        request = Request(handler.command, name, urllib.parse.unquote(url.query), wanted)
        self.requests.append(request)
        fault = self.fault(request) or ""
        size = int(handler.headers.get("Content-Length") or 0)
        if fault == "cut request":
            handler.rfile.read(size // 2)
            return self.cut(handler)
        body = handler.rfile.read(size)
        if re.match(r"\d{3} ", fault):
            number, _, code = fault.partition(" ")
            content = f"<Error><Code>{code}</Code><Message>{SECRET} is not shown</Message></Error>".encode()
            return self.send(handler, request, int(number), {}, content)
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        with contextlib.closing(upstream):
            upstream.request(handler.command, handler.path, body, dict(handler.headers))
            response = upstream.getresponse()
            content = response.read()
            if fault == "cut answer":
                return self.cut(handler)
            if fault.startswith("hide "):
                hidden = re.escape(fault.removeprefix("hide ")).encode()
                content = re.sub(
                    rb"<Contents>(?:(?!</Contents>).)*" + hidden + rb".*?</Contents>", b"", content, flags=re.DOTALL
                )
            self.send(handler, request, response.status, dict(response.getheaders()), content)

    @staticmethod
    def cut(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def send(handler, request: Request, status: int, headers: dict[str, str], content: bytes) -> None:
        request.status = status
        handler.send_response_only(status)
        for key, value in headers.items():
            if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                handler.send_header(key, value)
        length = headers.get("Content-Length", len(content)) if request.method == "HEAD" else len(content)
        handler.send_header("Content-Length", str(length))
        handler.end_headers()
        if request.method != "HEAD":
            handler.wfile.write(content)

    def times(self, method: str, pattern: str) -> int:
        """Returns the number of successful requests with this method for objects whose names match the pattern."""
        return sum(
            r.method == method and 200 <= r.status < 300 and bool(re.search(pattern, r.name)) for r in self.requests
        )


IDENTITIES = {
    "identities": [
        {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Read", "Write", "List", "Tagging"],
        }
    ]
}


def weed() -> str:
    """The path of SeaweedFS's program, beside Python or in a directory of packages. Skips the test without it."""
    folders = [Path(sys.executable).parent, *(Path(path) / "bin" for path in sys.path), os.environ["PATH"]]
    program = shutil.which("weed", path=os.pathsep.join(map(str, folders)))
    if program is None:
        pytest.skip("needs pip install 'lvp[bucket-tests]'")
    return program


def free_ports(count: int) -> list[int]:
    """Free ports whose number plus 10,000, which SeaweedFS adds, is a port too."""
    with contextlib.ExitStack() as stack:
        ports: set[int] = set()
        while len(ports) < count:
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports |= {port} if (port := listener.getsockname()[1]) < 55_000 else set()
    return sorted(ports)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[int]:
    """The port of a new SeaweedFS server with an empty bucket. Skips the tests if a package is missing."""
    pytest.importorskip("obstore", reason="needs pip install 'lvp[buckets]'")
    program, folder = weed(), tmp_path_factory.mktemp("s3")
    (folder / "identities.json").write_text(json.dumps(IDENTITIES))
    names = ("master.port", "volume.port", "filer.port", "s3.port")
    ports = dict(zip(names, free_ports(4), strict=True))
    command = [program, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-s3", "-s3.iam=false"]
    command += [f"-s3.config={folder / 'identities.json'}", "-volume.max=20", "-master.volumeSizeLimitMB=64"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # their ports are fixed, and several servers may run
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        deadline = time.monotonic() + 60
        while not answers(ports["s3.port"]):
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        shell = [program, "shell", f"-master=127.0.0.1:{ports['master.port']}"]
        subprocess.run(shell, input=f"s3.bucket.create -name {BUCKET}\n", text=True, capture_output=True, check=True)
        yield ports["s3.port"]
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    """Whether an HTTP server answers at the port."""
    with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/")
        return connection.getresponse().status in (200, 403)
    return False


@pytest.fixture
def proxy(server, monkeypatch) -> Iterator[Proxy]:
    """A proxy without faults, to which obstore sends the requests of this process and of its children."""
    with Proxy(server) as running:
        for name, value in environment(running.port).items():
            monkeypatch.setenv(name, value)
        yield running


def environment(port: int) -> dict[str, str]:
    """The variables that obstore reads."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
