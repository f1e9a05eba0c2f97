"""`status` reports the state of the sweep's directory."""

import json
import os
import re
import shutil
import time

import pytest

from lvp.training import records
from sweeps.driver import lane_index, status
from sweeps.driver.lock import driver, only_driver
from sweeps.driver.manifest import Manifest


@pytest.fixture
def half(finished, tmp_path):
    """A sweep with six of twelve lanes finished, two of them in the session, which began an hour ago. One lane is
    running and two have failed."""
    out = tmp_path / "out"
    shutil.copytree(finished[0], out, ignore=shutil.ignore_patterns("progress"))
    (out / "progress").mkdir()
    manifest = Manifest.read(out)
    lanes = list(manifest.cells[0].lanes)
    now = time.time()
    for lane in manifest.cells[1].lanes:
        manifest.record_path(lane).unlink()
    for i, lane in enumerate(lanes):
        os.utime(manifest.record_path(lane), (now, now - (60 if i < 2 else 7200)))
    manifest.session_path.write_text(json.dumps({"time": now - 3600}))
    first, *others = manifest.cells[1].lanes
    manifest.write_progress(1, [first], 10)
    failure = {
        "trial": "0003",
        "cell": manifest.cells[1].label,
        "lanes": others[:2],
        "reason": "KeyError: 'x'",
    }
    manifest.failures_path.write_text(json.dumps(failure) + "\n")
    return manifest


def test_counts_pace_and_time_left(half):
    with only_driver(half.out):
        sweep = status.status(half)
        text = status.text(half)
    assert [c.finished for c in sweep.cells] == [6, 0] and [c.failed for c in sweep.cells] == [0, 2]
    assert sweep.cells[1].running == [10 / half.cells[1].cell.steps]
    assert sweep.lanes_per_hour == pytest.approx(2, rel=0.01)
    # Two lanes of the first cell and a quarter of a lane of the second cell took an hour.
    costs = [e.cell.flops_per_lane for e in half.cells]
    done = 2 * costs[0] + 0.25 * costs[1]
    hours = 5.75 * costs[1] / done
    assert sweep.cells[1].flops_left == pytest.approx(5.75 * costs[1])
    assert sweep.seconds_for(sweep.cells[1].flops_left) == pytest.approx(hours * 3600, rel=0.01)
    assert "6 of 12 lanes have a record" in text and f"pid {os.getpid()}: 2 lanes per hour" in text
    assert re.search(r"^d 24.* 6 +0 +0 +2 .*25%$", text, re.MULTILINE)
    assert "failed: 2 lanes of cell d 24, m 480: KeyError: 'x'" in text


def test_a_failed_lane_that_finished_later_is_not_shown_as_failed(half, finished):
    shutil.copytree(finished[0] / "records", half.out / "records", dirs_exist_ok=True)
    text = status.text(half)
    assert "failed:" not in text and "no driver is running" in text and driver(half.out) == ""


def test_status_writes_no_control_characters_into_a_log(half, command_here):
    done = command_here("status", half.out)
    assert done.returncode == 0 and "\033" not in done.stdout
    # No driver is running: the text is printed once.
    assert command_here("status", half.out, "--watch", "0.1").stdout == done.stdout


def signed(content):
    return content | {"digest": records.config_hash({k: v for k, v in content.items() if k != "digest"})}


def with_cell(content, **changes):
    first, *others = content["cells"]
    return signed(content | {"cells": [first | changes, *others]})


DAMAGED = {
    "missing": lambda content: None,
    "cut short": lambda content: json.dumps(content)[:-9],
    "changed": lambda content: json.dumps(content).replace("d 16", "d 61"),
    "of another sweep": lambda content: json.dumps(signed(content | {"sweep": "0" * 16})),
    "without steps": lambda content: json.dumps(with_cell(content, steps=0)),
    "with other names": lambda content: json.dumps(with_cell(content, lanes=["../../x", "\0"])),
    "with a label that clears the screen": lambda content: json.dumps(with_cell(content, label="\033[2J")),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_status_does_not_depend_on_the_lane_index(half, damage):
    """A damaged or missing index only makes `status` slower."""
    path = half.out / lane_index.NAME
    expected, content = status.text(half), json.loads(path.read_text())
    assert json.dumps(signed(content)) == json.dumps(content)
    path.unlink()
    if (damaged := damage(content)) is not None:
        path.write_text(damaged)
    assert status.text(Manifest.read(half.out)) == expected


def test_status_reads_the_lane_index(half):
    """Without this test, the tests above would also pass if `status` never read the index."""
    path = half.out / lane_index.NAME
    path.write_text(json.dumps(with_cell(json.loads(path.read_text()), label="another")))
    assert "\nanother " in status.text(Manifest.read(half.out))
