"""A record, a manifest and a published result, each written to a directory, and their readers."""

import experiments
from lvp.errors import InputError
from lvp.files import write_whole
from lvp.training import records
from sweeps.driver.manifest import Manifest
from sweeps.reporting import results


def config():
    return experiments.to_dict(experiments.configured("width_vocab", "smoke"))


def make_record(folder):
    configured = {"cell": {"model": {"width": 8}}, "lane": {"seed": 1}, "data": None}
    lane = records.config_hash(configured)
    record = {"format": records.FORMAT, "hash": lane, "config": configured, "experiment": "e", "tier": "smoke"}
    record |= {"sweep": "s", "outcome": {"status": "finished", "loss": 1.5e-7, "steps": [1, 2]}}
    records.write(folder / f"{lane}.jsonl", [record | {"provenance": {"commit": "abc"}}])
    return folder / f"{lane}.jsonl"


def read_record(path):
    read = Manifest._read_record(path)
    if isinstance(read, InputError):
        raise read
    return read


def make_manifest(folder):
    Manifest(folder, "width_vocab", "smoke", config(), {"d 16": None}).write()
    return folder / "manifest.json"


def make_published(folder):
    plain = make_record(folder)
    records.write(folder / results.RECORDS, records.read(plain))
    plain.unlink()
    described = results._with_digests({"experiment": "e", "seconds": 1e5}, records.content(folder / results.RECORDS))
    write_whole(folder / results.DESCRIPTION, records.dumps(described))
    return folder / results.DESCRIPTION


def read_published(path):
    result = results._read(path.parent)
    return result.sweep, result.rows


FILES = {
    "record": (make_record, read_record),
    "manifest": (make_manifest, lambda path: Manifest.read(path.parent)),
    "description of a result": (make_published, read_published),
    "records of a result": (
        lambda folder: make_published(folder).with_name(results.RECORDS),
        read_published,
    ),
}
