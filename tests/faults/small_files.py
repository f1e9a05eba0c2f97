"""A record, a description of a sweep, the fingerprint of a program and a published result, each with its reader."""

import functools

from lvp import experiments
from lvp.files import write_whole
from lvp.sweeps import committed, fingerprint
from lvp.sweeps.store import Store, _checked
from lvp.sweeps.sweep import NAME, Sweep
from lvp.training import records

RUN = {"cell": {"model": {"width": 8}}, "lane": {"seed": 1}, "data": None}


def config():
    return experiments.to_dict(experiments.configured("width_vocab", "smoke"))


def a_record():
    run = records.config_hash(RUN)
    record = {"format": records.FORMAT, "hash": run, "config": RUN, "experiment": "e", "tier": "smoke", "sweep": "s"}
    return record | {"outcome": {"status": "finished", "loss": 1.5e-7, "steps": [1, 2]}, "provenance": {"commit": "a"}}


def a_sweep(**changed):
    packing = {"platform": "cpu", "workers": 1, "threads": 1, "lanes_per_program": {"d 16": 1}}
    runs = [{"label": "d 16", "steps": 2, "flops": 1.0, "runs": [records.config_hash(RUN)]}]
    values = {"config": config(), "datasets": {"d 16": None}, "packing": packing, "settings": runs}
    values |= {"experiment": "width_vocab", "preset": "smoke", "environment": fingerprint.present()}
    return Sweep(**(values | changed))


def make_record(folder):
    Store(folder).add_record(a_record())
    return folder / "records" / f"{records.config_hash(RUN)}.jsonl"


def make_sweep(folder):
    a_sweep().create(Store(folder))
    return folder / NAME


def make_fingerprint(folder):
    write_whole(folder / "program.json", fingerprint.content(fingerprint.present()))
    return folder / "program.json"


def make_published(folder, name=committed.DESCRIPTION):
    records.write(folder / committed.RECORDS, [a_record()])
    description = {"experiment": "width_vocab", "tier": "smoke", "config": config(), "seconds": 1e5}
    write_whole(
        folder / committed.DESCRIPTION, committed.described(description, records.content(folder / committed.RECORDS))
    )
    return folder / name


def read_published(path):
    result = committed.read(path.parent)
    return result.sweep, result.rows


FILES = {
    "a record": (make_record, lambda path: _checked(path.read_bytes(), path.stem)),
    "sweep.json": (make_sweep, lambda path: Sweep.read(Store(path.parent))),
    "the fingerprint of a program": (make_fingerprint, lambda path: fingerprint.held(path.read_bytes())),
    "the description of a result": (make_published, read_published),
    "the records of a result": (functools.partial(make_published, name=committed.RECORDS), read_published),
}
