"""No user input is executed except an experiment's file given to `run`: no pickle is loaded, no text is evaluated, no
module is imported by name."""

import ast
import contextlib
import hashlib
import json
import os
import pickle
import shutil
import sys

import numpy as np
import pytest

from lvp import data, experiments, sweeps
from lvp.data.text import downloads
from lvp.data.tokens.shards import Place
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError
from lvp.files import storage, write_whole
from lvp.files.places import Directory
from lvp.sweeps import commands
from lvp.sweeps.store import Store
from lvp.training import records
from tests.docs.sources import FILES, ROOT, imported
from tests.faults.damage import contents
from tests.faults.small_files import a_sweep, config
from tests.marking import all_slow_but, slow
from tests.sweeps.running import outcomes

FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "marshal",
    "shelve",
    "joblib",
    "torch",
    "yaml",
    "runpy",
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "np.load", "numpy.load", "os.system", "os.popen"}
ALLOWED = {
    "experiments/__init__.py": {"importlib.import_module"},  # the name is checked against a list
    "experiments/common/user_experiments.py": {"exec", "compile"},  # a file that the user has given
    "lvp/cli/parser.py": {"exec"},  # the empty text, which clears a mark of the interpreter
    "sweeps/__init__.py": {"importlib.import_module"},  # the names are listed there
}
NETWORK = {"urllib", "http", "requests", "ftplib"}


def executes(source: str) -> set[str]:
    """Returns the constructs of a module's source that load programs or evaluate text."""
    constructs = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            constructs |= {a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            constructs.add(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in FORBIDDEN_CALLS or name.endswith(("import_module", "exec_module", "load_module")):
                constructs.add(name)
            constructs |= {f"{k.arg}=" for k in node.keywords if k.arg in ("allow_pickle", "shell")}
    return constructs


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_loads_programs_or_evaluates_text(path):
    assert executes(path.read_text()) <= ALLOWED.get(str(path.relative_to(ROOT)), set())


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from cloudpickle import loads",
        "import torch.serialization",
        "np.load(path)",
        "np.lib.format.read_array(file, allow_pickle=True)",
        "yaml = __import__('yaml')",
        "importlib.import_module(name)",
        "spec.loader.exec_module(module)",
        "eval('1')",
        "subprocess.run(text, shell=True)",
    ],
)
def test_forbidden_constructs_are_detected(source):
    assert executes(source)


def test_only_one_module_downloads():
    assert [str(p.relative_to(ROOT)) for p in FILES if NETWORK & set(imported(p))] == ["lvp/data/text/downloads.py"]


def test_a_download_with_another_digest_is_refused(tmp_path):
    path = tmp_path / "archive"
    path.write_bytes(b"the release")
    digest, names = hashlib.sha256(b"the release").hexdigest(), {"what": "it", "way_out": "copy it"}
    assert downloads.fetch(path.as_uri(), digest, **names) == b"the release"
    path.write_bytes(b"the releasE")
    with pytest.raises(InputError, match="has sha256 .* not the release; copy it"):
        downloads.fetch(path.as_uri(), digest, **names)


class Program:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return write_whole, (str(self.path), "executed")


@pytest.fixture
def planted(tmp_path):
    """Returns (a directory, a .npy file in it that contains a program, the file that the program writes)."""
    trace, path = tmp_path / "trace", tmp_path / "train.npy"
    path.write_bytes(storage.npy(np.array([Program(trace)], object)))
    np.load(path, allow_pickle=True)  # otherwise the tests below could pass without a working program
    assert trace.read_text() == "executed"
    trace.unlink()
    return tmp_path, path, trace


def test_an_array_of_objects_is_refused_before_it_is_read(planted):
    folder, path, trace = planted
    for content in (path.read_bytes(), pickle.dumps(Program(trace))):
        path.write_bytes(content)
        with pytest.raises(InputError, match="train.npy is not an array of numbers") as caught:
            storage.load_npy(path)
        assert len(str(caught.value).splitlines()) == 1
        named = {"num_tokens": 1, "num_valid_tokens": 1, "vocab": 300, "train_bytes": 4, "valid_bytes": 4}
        prints = {"corpus_fingerprint": "a", "tokenizer_fingerprint": "b", "spec": "text:a"}
        dataset = data.Dataset(path, path, **named, **prints)
        with pytest.raises(InputError, match="is not an array of numbers"):
            dataset.tokens("train")
    assert not trace.exists()


def test_programs_in_token_directories_are_refused(planted, tmp_path):
    folder, path, trace = planted
    settings = {"asked": {}, "text": {}, "vocab": 300, "separator": None, "shard_bytes": 1}
    settings["tokenizer"] = {"file": "tokenizer.model", "fingerprint": Tokenizer.train(b"text" * 9, 256).fingerprint}
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    record = {"settings": "0", "tokens": 1, "bytes": 4, "sha256": sha256}
    meta = {"settings": settings, "shards": {"train": [record], "valid": [record]}, "validation": ""}
    Tokenizer.train(b"text" * 9, 256).save(folder / "tokenizer.model")
    for split in ("train", "valid"):
        (folder / f"{split}-00000.npy").write_bytes(path.read_bytes())
    path.unlink()
    for signed in (meta, None):  # with a record, and as files of another project
        if signed is None:
            (folder / "meta.json").unlink()
        else:
            Place(folder).sign("meta.json", signed)
        with pytest.raises(InputError, match="train-00000.npy is not an array of numbers"):
            data.prepare(f"tokens:{folder}", vocab=300, slice_bytes=None, valid_bytes=None, cache=tmp_path / "cache")
    assert not trace.exists()


HOSTILE = ["__import__('os').system('touch executed')", "$(touch executed)"]


@pytest.mark.parametrize("text", HOSTILE)
def test_configured_text_stays_text_or_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = experiments.configured("width_vocab", "smoke", {"corpus": text})
    assert config.corpus == text
    with pytest.raises(InputError, match="unknown corpus"):
        data.load(config.corpus, cache=tmp_path / "cache")
    for key in ("steps", "rates", "norm", "head_dim"):
        with pytest.raises(InputError):
            config = experiments.configured("width_vocab", "smoke", {key: text})
            experiments.load("width_vocab").settings(config)
    assert not list(tmp_path.iterdir())


NO_EXPERIMENTS = ["../evil", "evil", "lvp.experiments.warmup"]


@pytest.mark.parametrize("name", NO_EXPERIMENTS)
def test_only_listed_experiments_are_imported(name, tmp_path, monkeypatch):
    """The name, given by the user or by sweep.json, is a path, a module or anything else."""
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    with pytest.raises(InputError, match="unknown experiment"):
        experiments.load(name)
    a_sweep(experiment=name).create(Store(tmp_path / "out"))
    for call in (commands.figure, sweeps.resume):
        with pytest.raises(InputError, match="unknown experiment"):
            call(tmp_path / "out")
    assert name in commands.status(tmp_path / "out")  # which executes no experiment
    assert set(sys.modules) - before == set()


def test_a_configuration_holds_values_and_no_programs(tmp_path):
    for number, text in enumerate(HOSTILE):
        for changed in (
            {"config": config() | {"norm": text}},
            {"preset": text},
            {"config": config() | {"steps": text}},
        ):
            out = tmp_path / f"{number}" / next(iter(changed)) / str(len(changed))
            a_sweep(**changed).create(Store(out))
            with pytest.raises(InputError):
                sweeps.resume(out)
            assert {p.name for p in out.iterdir()} == {"sweep.json"}


UNUSABLE = [
    {"packing": {"threads": 0}},
    {"packing": {"lanes_per_program": {}}},
    {"packing": {"lanes_per_program": {"d 16, m 320": 0}}},
    {"packing": {"mesh": "x"}},
    {"packing": {"mesh": {"fsdp": 2}}},
    {"datasets": {"d 16, m 320": [1]}},
    {"datasets": {"x": 3}},
    {"datasets": {"d 16, m 320": {"spec": "text:a"}}},
]


@pytest.mark.parametrize("changed", UNUSABLE, ids=str)
def test_a_signed_sweep_with_unusable_values_is_refused(changed, copy):
    path = copy / "sweep.json"
    held = json.loads(path.read_text())
    del held["digest"]
    changed = {"packing": held["packing"] | changed["packing"]} if "packing" in changed else changed
    path.write_text(json.dumps(held | changed | {"digest": records.config_hash(held | changed)}))
    before = contents(copy)
    with pytest.raises(InputError, match="sweep.json|began without the setting"):
        sweeps.resume(copy, executor="inline", quiet=True)
    assert contents(copy) == before


def test_status_prints_no_control_characters(copy):
    run = min(copy.glob("records/*")).stem
    (copy / "records" / f"{run}.jsonl").unlink()
    Store(copy).add_failure([run], "red\x1b[31m\nand lines")
    assert "\nfailed: 1 run: red\\x1b[31m\\nand lines" in commands.status(copy)


def test_a_record_cannot_name_its_path(tmp_path):
    """The file name of a run is the hash of its configuration, regardless of the file's content."""
    record = {"format": 1, "hash": "../../evil", "config": {}, "outcome": {"status": "finished"}, "provenance": {}}
    (tmp_path / "out" / "records").mkdir(parents=True)
    records.write(tmp_path / "out" / "records" / "00ff.jsonl", [record])
    assert Store(tmp_path / "out").record("00ff") is None and not list(tmp_path.glob("evil*"))
    assert [path.name for path in tmp_path.rglob("*.*")] == ["00ff.damaged"]


# --- links in a stranger's directory -----------------------------------------------------------------------------

FILES_LINKED = ("table.csv", "figure.png", "figure.svg", "claims.md", "experiment.py", "records/{run}.damaged")
FOLDERS_LINKED = ("checkpoints/{run}", "checkpoints", "failed", "programs", "logs", "tensorboard", "records")


@pytest.fixture
def outside(tmp_path):
    """A user's directory with an old file and an old directory whose names are those of abandoned temporary files."""
    (tmp_path / "home" / ".tmp-mine").mkdir(parents=True)
    for name in ("mine", ".tmp-mine/mine", ".mine.tmp", "step_000000001"):
        (tmp_path / "home" / name).write_text("my file")
    for path in (tmp_path / "home").iterdir():
        os.utime(path, (0, 0))
    return tmp_path / "home"


LINKED = (*FILES_LINKED, *FOLDERS_LINKED, "records/{run}.jsonl", "failed/{run}.json")


@pytest.mark.parametrize(
    "name", all_slow_but(("table.csv", "records/{run}.jsonl", "checkpoints/{run}", "failed"), LINKED)
)
@pytest.mark.parametrize("dangling", [False, slow(True)], ids=str)
def test_a_link_leads_no_write_outside(name, dangling, small, copy, whole, outside, command_here):
    """The sweep's first record is gone or damaged, so that its run is trained, saved and recorded."""
    run = min(outcomes(whole))
    (copy / "records" / f"{run}.jsonl").write_text("damaged")
    place, folder = copy / name.format(run=run), name in FOLDERS_LINKED
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    target = outside / "missing" if dangling else outside if folder else outside / "mine"
    place.symlink_to(target)
    before = contents(outside)
    with contextlib.suppress(OSError, RuntimeError):  # a link may stop the sweep
        small(copy, checkpoint_seconds=0.0, track="tensorboard" if name == "tensorboard" else None)
    for words in ("status", "figure", "track"):
        done = command_here(words, copy)
        assert done.stderr.count("\n") <= 1 and "Traceback" not in done.stderr
    assert contents(outside) == before and (outside / ".tmp-mine").is_dir()


def test_a_link_in_place_of_the_logs_is_named(copy, outside):
    """The local executor opens log files in the driver's process."""
    min(copy.glob("records/*")).unlink()
    (copy / "logs").symlink_to(outside)
    with pytest.raises(OSError, match="Is a link, which a sweep does not follow"):
        sweeps.resume(copy, executor="local", quiet=True)
    assert not list(outside.glob("worker-*"))


def test_names_lead_outside_without_the_check(copy, outside, monkeypatch):
    """Control of the tests above."""
    monkeypatch.setattr(Directory, "place", lambda directory, name, make=True: directory.path / name)
    (copy / "failed").symlink_to(outside)
    Store(copy).add_failure(["0123"], "reason")
    assert (outside / "0123.json").exists()
