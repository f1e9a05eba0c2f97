"""The command of this package: runs the parts as processes and writes their rows and a table."""

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lvp.files import write_whole
from lvp.training import records
from tests import QUICK_COMPILATION
from tests.benchmarks.accelerator import bits, figure, sizes
from tests.benchmarks.accelerator.rows import Rows, read, table

ROOT = Path(__file__).parents[3]
PARTS = ("right", "bits", "fast", "big", "figure")
FUSED = "fused attention"  # rows of `right` that decide whether the sweep uses the fused kernel
GRACE = 5.0  # seconds after its limit in which a part may end by itself
UNTUNED = "--xla_gpu_autotune_level=0"
# Threads of `right` call programs while others are captured as CUDA graphs, which CUDA refuses.
UNCAPTURED = "--xla_gpu_enable_command_buffer="
PACKAGES = ("torch", "pandas", "scipy", "jax-cuda12-plugin", "jax-cuda13-plugin")
ALL = 480.0  # seconds of all parts; the sweep gets what other parts leave


def end_with_parent() -> None:
    """Asks Linux to send SIGKILL to this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


def part(name: str, work: Path, seconds: float, chosen: sizes.Sizes, corpus: str) -> None:
    """Runs one part in this process, which ends if the command is killed."""
    end_with_parent()
    rows = Rows(work / f"{name}.json", seconds)
    module = importlib.import_module(f"tests.benchmarks.accelerator.{name}")
    if name == "figure":
        module.main(rows, chosen, corpus, attention(work))
    else:
        module.main(rows, chosen)


def attention(work: Path) -> str:
    """The attention of the sweep: "fused" if its rows hold, else "masked"."""
    checked = [row for row in read(work / "right.json") if row["quantity"].startswith(FUSED)]
    return "fused" if checked and all(row.get("holds") for row in checked) else "masked"


def environment(name: str, small: bool, cache: Path) -> dict[str, str]:
    """The environment of a part's process."""
    changed = {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    # On a CPU, host and device run the same programs. On a GPU, a second call of the command finds its programs.
    changed |= {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    untimed = name in ("right", "bits")  # they measure no speed of products
    flags = [
        os.environ.get("XLA_FLAGS", ""),
        QUICK_COMPILATION * small,
        UNTUNED * untimed,
        UNCAPTURED * (name == "right"),
        bits.FLAG * (name == "bits"),
    ]
    changed["XLA_FLAGS"] = " ".join(filter(None, flags))  # XLA takes a blank for the name of a file
    if name == "big":
        changed["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.95"
    elif untimed:
        changed["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return os.environ | changed


def run_part(name: str, words: list[str], limit: float, messages: Path, cache: Path) -> dict[str, Any]:
    """Runs a part as a process. Returns its seconds and how it ended."""
    started = time.monotonic()
    with open(messages, "a") as log:
        print(f"\n== {name}", file=log, flush=True)
        words = [sys.executable, "-m", "tests.benchmarks.accelerator", *words, "--part", name, "--seconds", str(limit)]
        own = environment(name, "--small" in words, cache)
        code = figure.run_until(words, limit + GRACE, session=True, env=own, stdout=log, stderr=log)
    ended = {0: "finished", None: "stopped at its time limit"}.get(code, f"exit code {code}")
    return {"seconds": round(time.monotonic() - started, 1), "ended": ended}


def device() -> dict[str, Any]:
    """The device, as a process of JAX sees it, and the driver."""
    code = "import jax, json; d = jax.devices(); print(json.dumps([d[0].platform, d[0].device_kind, len(d)]))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    facts = dict(zip(("platform", "kind", "count"), json.loads(answer.stdout.splitlines()[-1]), strict=True))
    words = ["nvidia-smi", "--query-gpu=driver_version,memory.total", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError, IndexError, ValueError):
        line = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        facts["driver"], facts["memory"] = (word.strip() for word in line.split(","))
    return facts


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = dict(records.software()["versions"])
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write(out: Path, facts: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Writes accelerator.json and table.md, and returns the table."""
    named = ", ".join(f"{name} {facts['versions'][name]}" for name in ("jax", "torch") if name in facts["versions"])
    driver = f", driver {facts['device']['driver']}" if "driver" in facts["device"] else ""
    text = f"{facts['device']['kind']}{driver}, {named}, {facts['date']}, commit {facts['commit']}\n"
    for name, done in parts.items():
        text += f"\n**{name}**: {done['ended']} after {done['seconds']:g} s\n\n{table(done['rows'])}\n"
    content = dict(facts) | {"parts": parts, "table": text}
    write_whole(out / "accelerator.json", json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n")
    write_whole(out / "table.md", text)
    return text


def collect(work: Path, out: Path) -> None:
    """Copies the sweep's figure and packs its directory without checkpoints."""
    sweep = work / "sweep"
    if not sweep.is_dir():
        return
    for name in ("figure.png", "figure.svg"):
        if (sweep / name).exists():
            shutil.copy(sweep / name, out / name)
    with tarfile.open(out / "sweep.tar.gz", "w:gz") as archive:
        archive.add(sweep, "sweep", filter=lambda entry: None if "/checkpoints" in entry.name else entry)


def run(arguments: argparse.Namespace, chosen: sizes.Sizes) -> int:
    """Runs all parts. Returns 0 if every part finished and no measurement failed; bounds need not hold."""
    out, work = arguments.out.absolute(), arguments.work.absolute()
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    words = ["--out", str(out), "--work", str(work), "--corpus", arguments.corpus]
    words += ["--small"] * arguments.small
    facts = {
        "commit": records.software()["commit"],
        "corpus": arguments.corpus.partition(":")[0],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": device(),
        "sizes": chosen.name,
        "versions": versions(),
    }
    # The tokenizers are trained on the CPU while the device measures.
    command = [sys.executable, "-m", "tests.benchmarks.accelerator", *words, "--part", "prepare"]
    prepared = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"})
    parts: dict[str, Any] = {}
    started, text = time.monotonic(), ""
    try:
        for name in arguments.parts or PARTS:
            limit = chosen.seconds[name]
            if name == "figure":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    prepared.wait(60)
                limit = max(limit, ALL - (time.monotonic() - started))
            done = run_part(name, words, limit, out / "messages.log", work.parent / "xla")
            parts[name] = done | {"limit": round(limit), "rows": read(work / f"{name}.json")}
            text = write(out, facts | {"prepared": prepared.poll()}, parts)
            print(f"{name}: {done['ended']} after {done['seconds']:g} s", flush=True)
    finally:
        prepared.kill()
        collect(work, out)
    print(text)
    rows = [row for done in parts.values() for row in done["rows"]]
    bounds = [row["holds"] for row in rows if row.get("holds") is not None]
    print(f"{sum(bounds)} of {len(bounds)} bounds hold")
    complete = all(done["ended"] == "finished" and done["rows"] for done in parts.values())
    return 0 if complete and not any("failed" in row for row in rows) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.accelerator", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory of the results")
    parser.add_argument("--corpus", default="python-docs", help="text of the sweep (default: python-docs)")
    parser.add_argument("--small", action="store_true", help="shrunken sizes, for a CPU")
    parser.add_argument("--dry", action="store_true", help="only compile the programs for an H100, without a GPU")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="run only these parts")
    work = ROOT / "build" / "accelerator"
    parser.add_argument("--work", type=Path, default=work, help="directory of the sweep (default: build/accelerator)")
    parser.add_argument("--part", choices=(*PARTS, "prepare"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = sizes.SMALL if arguments.small else sizes.FULL
    if arguments.dry:
        from tests.benchmarks.accelerator import dry

        return dry.main(arguments.out, chosen)
    if arguments.part == "prepare":
        figure.prepare(chosen, arguments.corpus)
    elif arguments.part:
        part(arguments.part, arguments.work, arguments.seconds, chosen, arguments.corpus)
    else:
        return run(arguments, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
