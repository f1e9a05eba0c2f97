"""Damaged and adversarial configurations, corpora, records and sweep directories give a result or a one-line error. No
other exception is raised, and no user file changes."""

import json
import pickle
import shutil
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvp import data, experiments
from lvp.data.tokens import tokenization
from lvp.errors import InputError
from lvp.experiments.large_updates.images import load_images
from lvp.files import storage
from lvp.sweeps import commands, driver, forecast
from lvp.sweeps.store import Store
from lvp.sweeps.sweep import Sweep
from lvp.training import records, task_for
from tests.faults import damage
from tests.faults.damage import examples, result_or_one_line
from tests.lvp.data.tokens.texts import some_text
from tests.marking import slow

SMOKE = {name: experiments.load(name).presets["smoke"] for name in experiments.NAMES}
AWKWARD = [
    *("0", "-1", "1", "2", "7", "1000000007", "6000000002", str(10**18), str(10**30)),
    *(
        "1" * 5000,
        "1e308",
        "5e-324",
        "1e39",
    ),
]
AWKWARD += [*("nan", "inf", "-inf", "-0.0", "0.5", "1,2", "2,1", "1,1", "0.1,0.2,0.3", "1e-320,1e-310,1e-300")]
AWKWARD += [*("256,300", "none", "true", "x", "a,b", "", ",", "\ud800", "a\nb", "a\0b", "__import__('os')", "{}", "٣")]


def few_or_many(few, many):
    """Sets the number of examples: `few` in `make test`, `many` in `make test-slow`."""
    return pytest.mark.parametrize("count", [few, slow(many)])


def planned(name, values):
    """Returns a sweep's forecast after all checks of a configuration that need no data."""
    settings = experiments.load(name).settings(experiments.configured(name, "smoke", values))
    for planned_setting in settings:
        task_for(planned_setting.setting).check_runs(planned_setting.runs)
    return forecast.table(settings), forecast.expected(settings, 2, accelerator=True)


def configurations():
    texts = st.one_of(st.sampled_from(AWKWARD), st.text(max_size=10), damage.NUMBERS.map(str))
    texts |= st.lists(damage.NUMBERS.map(str), max_size=4).map(",".join)
    values = st.one_of(texts, texts, damage.JSON)
    keyed = {n: st.dictionaries(st.sampled_from(list(get_type_hints(type(c)))), values) for n, c in SMOKE.items()}
    junk = st.dictionaries(st.text(max_size=6), values, max_size=1)
    return st.one_of([st.tuples(st.just(name), st.one_of(keys, keys, keys, junk)) for name, keys in keyed.items()])


@few_or_many(100, 10_000)
def test_configurations(count):
    outcomes = []

    @examples(count)
    @given(configurations())
    def check(asked):
        outcomes.append(isinstance(result_or_one_line(lambda: planned(*asked)), InputError))

    check()
    assert {True, False} <= set(outcomes)  # both occur


@few_or_many(40, 2000)
def test_texts(count, tmp_path):
    path, cache = tmp_path / "text", tmp_path / "cache"
    paragraphs = some_text(300).encode()
    content = st.one_of(
        st.binary(max_size=40), st.text(max_size=200).map(str.encode), damage.of_bytes(paragraphs), st.just(b"a\n" * 99)
    )
    sizes = st.one_of(st.none(), st.integers(-1, 400))
    usable = []

    @examples(count)
    @given(content, st.integers(255, 300), sizes, sizes)
    def check(content, vocab, slice_bytes, valid_bytes):
        path.write_bytes(content)
        asked = {"vocab": vocab, "slice_bytes": slice_bytes, "valid_bytes": valid_bytes, "cache": cache}
        dataset = result_or_one_line(lambda: data.prepare(f"text:{path}", **asked))
        usable.append(isinstance(dataset, data.Dataset))
        if usable[-1]:
            assert 0 < dataset.train_bytes <= len(content) + 1  # a line end may be added
            assert dataset.tokens("train").size == dataset.num_tokens
        assert path.read_bytes() == content

    check()
    assert set(usable) == {True, False}


@pytest.mark.parametrize("path", ["~nobody/x", "a\0b", "x" * 5000, "\ud800", "a\nb", "/dev/null/x", "/proc/self/mem"])
@pytest.mark.parametrize("kind", ["text", "wikitext2", "tokens", "cifar10", "scored"])
def test_unusable_paths(path, kind, tmp_path):
    everything = {"vocab": 300, "slice_bytes": None, "valid_bytes": None, "cache": tmp_path}
    outcome = result_or_one_line(
        lambda: (
            load_images(f"{kind}:{path}", cache=tmp_path)
            if kind == "cifar10"
            else data.prepare("python-docs", **everything, scored_spec=f"text:{path}")
            if kind == "scored"
            else data.prepare(f"{kind}:{path}", **everything)
        )
    )
    assert isinstance(outcome, InputError)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "text").write_text(some_text(1500))
    settings = tokenization.Settings(f"text:{folder / 'text'}", 280)
    tokenization.tokenize(settings, folder / "out", cache=folder / "cache", workers=1)
    return folder / "out"


def signed(body):
    """Returns `body` with a valid digest, as an attacker would sign it."""
    if isinstance(body, dict):
        body = {k: v for k, v in body.items() if k != "digest"}
        try:
            return body | {"digest": storage.digest(storage.as_json(body))}
        except ValueError:  # JSON has no NaN
            return body
    return body


@st.composite
def token_directories(draw, whole):
    """Draws the files of a damaged directory: changed by accident, or changed and signed again."""
    files = {path.name: content for path, content in damage.contents(whole).items()}
    meta = json.loads(files["meta.json"])
    kind = draw(st.sampled_from(["bytes", "bytes", "meta", "meta", "tokenizer", "tokens", "pickle"]))
    if kind == "bytes":
        name = draw(st.sampled_from(sorted(files)))
        files[name] = draw(damage.of_bytes(files[name]))
    elif kind == "meta":
        files["meta.json"] = json.dumps(signed(draw(damage.of_json(meta)))).encode()
    else:
        name = "tokenizer.model" if kind == "tokenizer" else "train-00000.npy"
        array = np.array([draw(damage.JSON)] * 3, object)
        files[name] = pickle.dumps(array) if kind == "pickle" else draw(damage.of_bytes(files[name]))
        if kind == "pickle" and draw(st.booleans()):
            files[name] = storage.npy(array)
        if name.endswith(".npy"):
            meta["shards"]["train"][0]["sha256"] = storage.hashlib.sha256(files[name]).hexdigest()
        files["meta.json"] = json.dumps(signed(meta)).encode()
    return files


@few_or_many(80, 3000)
def test_token_directories(count, tokens, tmp_path):
    directory = tmp_path / "tokens"
    refused = []

    @examples(count)
    @given(token_directories(tokens), st.sampled_from([None, 50, 1000]), st.booleans())
    def check(files, size, scored):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for name, content in files.items():
            (directory / name).write_bytes(content)
        asked = {"vocab": 280, "slice_bytes": size, "valid_bytes": None, "cache": tmp_path / "cache"}
        asked |= {"scored_spec": f"text:{tokens.parent / 'text'}"} if scored else {}

        def read():
            dataset = data.prepare(f"tokens:{directory}", **asked)
            return dataset.frequencies()

        refused.append(isinstance(result_or_one_line(read), InputError))
        assert damage.contents(directory) == {directory / name: content for name, content in files.items()}

    check()
    assert any(refused)


@few_or_many(40, 1000)
def test_unfinished_token_directories(count, tokens, tmp_path):
    """A file of an unfinished directory was changed by accident, or changed and signed."""
    directory, settings = tmp_path / "tokens", tokenization.Settings(f"text:{tokens.parent / 'text'}", 280)
    whole = {path.name: content for path, content in damage.contents(tokens).items() if path.name != "meta.json"}
    state = json.loads(whole["settings.json"])

    @examples(count)
    @given(st.data())
    def check(data):
        files = dict(whole)
        if data.draw(st.booleans()):
            files["settings.json"] = json.dumps(signed(data.draw(damage.of_json(state)))).encode()
        else:
            name = data.draw(st.sampled_from(sorted(files)))
            files[name] = data.draw(damage.of_bytes(files[name]))
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for name, content in files.items():
            (directory / name).write_bytes(content)
        again = lambda: tokenization.tokenize(settings, directory, cache=tmp_path / "cache", workers=1)  # noqa: E731
        if not isinstance(result_or_one_line(again), InputError):
            made = {name: content for name, content in whole.items() if name.endswith(".npy")}
            assert made and all((directory / name).read_bytes() == content for name, content in made.items())

    check()


@pytest.fixture(scope="module")
def sweep(small, tmp_path_factory):
    """The directory of a sweep with three runs: two have records, and one has failed."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    small(out)
    gone = max(out.glob("records/*"))
    gone.unlink()
    Store(out).add_failure([gone.stem], "no memory")
    for path in (*out.glob("figure.*"), out / "table.csv"):
        path.unlink()
    return out


def as_text(body) -> bytes:
    """Returns the body as one line, signed if it is a record or a manifest."""
    if isinstance(body, dict):
        body = {k: v for k, v in body.items() if k != "digest"}
        try:
            body["digest"] = records.config_hash(body)
        except ValueError:  # JSON has no NaN
            pass
    return json.dumps(body).encode() + b"\n"


@st.composite
def sweep_directories(draw, whole):
    """Draws one damaged or changed file of a sweep's directory."""
    files = damage.contents(whole)
    path = draw(st.sampled_from(sorted(files)))
    if draw(st.booleans()):
        return path, draw(damage.of_bytes(files[path]))
    return path, as_text(draw(damage.of_json(json.loads(files[path]))))


@few_or_many(60, 5000)
def test_sweep_directories(count, sweep):
    """Checks `status`, the table and the missing runs of a sweep directory in which one file changed."""
    whole, refused = damage.contents(sweep), []

    def read():
        store = Store(sweep)
        return commands.status(sweep), store.read_records(), driver.planned_runs(store, driver.existing(store))

    @examples(count)
    @given(sweep_directories(sweep))
    def check(damaged):
        path, content = damaged
        path.write_bytes(content)
        try:
            refused.append(isinstance(result_or_one_line(read), InputError))
            result_or_one_line(lambda: records.read(sweep / "records"))
            assert damage.contents(sweep) == whole | {path: content}
        finally:
            path.write_bytes(whole[path])

    check()
    assert {True, False} <= set(refused)


def test_deeply_nested_json(sweep, tokens, tmp_path):
    """The nesting exceeds the parser's recursion limit."""
    copies = [shutil.copytree(folder, tmp_path / folder.parent.name) for folder in (sweep, tokens)]
    for path in (*copies[0].rglob("*.json*"), copies[1] / "meta.json"):
        path.write_text("[" * 100_000)
    asked = {"vocab": 280, "slice_bytes": None, "valid_bytes": None, "cache": tmp_path / "cache"}
    for call in (
        lambda: Sweep.read(Store(copies[0])),
        lambda: records.read(copies[0] / "records"),
        lambda: data.prepare(f"tokens:{copies[1]}", **asked),
    ):
        assert isinstance(result_or_one_line(call), InputError)
    shutil.copy(sweep / "sweep.json", copies[0])
    assert "2 damaged records" in commands.status(copies[0])
