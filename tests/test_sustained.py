"""The benchmark of sustained load: what it counts and refuses, and a short run of each kind."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.open_loop import Histogram, Interval
from benchmarks.sustained import disk_rate, place_nodes
from benchmarks.sustained_options import FOLLOWERS, KINDS, SMALL_FILE_BYTES, Options, why_not
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS

GOOD = Options(
    kind="sync",
    rate=100.0,
    disk_share=None,
    own_share=None,
    body_bytes=1_024,
    rocketmq=False,
    seconds=9.0,
    interval=3.0,
    connections=8,
    fault=["stopped"],
    fault_seconds=2.0,
    bound=60.0,
    cold_reader=False,
    cleaning=False,
    file_bytes=SMALL_FILE_BYTES,
    disks=None,
)


def test_percentiles_are_true_to_about_one_percent() -> None:
    found = Histogram()
    for number in range(1, 10_001):
        found.add(number / 1000)
    for share in (0.5, 0.99, 0.999):
        assert 1.0 <= found.percentile(share) / (share * 10) <= 1.012
    assert found.percentile(1.0) == found.max_seconds == 10.0
    assert Histogram().percentile(0.99) == 0.0


def test_intervals_add_up() -> None:
    one, other = Interval(), Interval()
    one.latencies.add(0.001)
    other.latencies.add(0.1)
    other.failed[12] += 3
    other.sent = 4
    one.merge(other)
    assert (one.latencies.count, one.latencies.max_seconds, one.sent) == (2, 0.1, 4)
    assert one.failed == {12: 3}


BAD: dict[str, dict[str, object]] = {
    "--rate": {"rate": 0.0},
    "--interval": {"interval": 10.0},
    "--connections": {"connections": 0},
    "--kind": {"kind": "async"},
    "--bound": {"bound": 0.0},
    "--seconds": {"fault_seconds": 8.0},
    "give --seconds 12 ": {"fault_seconds": 3.0, "fault": ["stopped", "slow"]},
    "--file-bytes": {"file_bytes": 1 << 20},
    "one of --rate, --disk-share": {"disk_share": [50.0]},
    "and --own-share is wanted": {"rate": None, "disk_share": [50.0], "own_share": [50.0]},
    "--disk-share and": {"rate": None, "disk_share": [0.0]},
    "--own-share are": {"rate": None, "own_share": [50.0, 201.0]},
    "--body-bytes": {"body_bytes": 0},
    "no kind fenced": {"rocketmq": True, "kind": "fenced"},
    "give one of them": {"disks": ["/proc", "/dev"], "cleaning": True},
    "give --disks as many": {"disks": ["/proc"]},
    "--disks are directories": {"disks": ["/proc", "/proc"]},
    "each on a file system": {"disks": ["/proc", "/proc/none"]},
    "have no room in 3 s": {"rate": None, "disk_share": [50.0, 80.0, 95.0], "fault_seconds": 2.5},
}


@pytest.mark.parametrize("option", BAD)
def test_what_cannot_be_measured_is_refused_with_the_option_that_is_wrong(option: str) -> None:
    values = {name: getattr(GOOD, name) for name in GOOD.__struct_fields__}
    assert why_not(GOOD) is None
    assert option in str(why_not(Options(**{**values, **BAD[option]})))


def test_two_faults_have_as_long_after_them_as_between_them() -> None:
    values = {name: getattr(GOOD, name) for name in GOOD.__struct_fields__}
    assert GOOD.faults_at == [1 / 3]
    assert Options(**{**values, "fault": ["stopped", "slow"]}).faults_at == [1 / 4, 2 / 4]
    assert Options(**{**values, "fault": None}).faults_at == []


def test_a_disk_is_written_and_leaves_nothing_behind(tmp_path: Path) -> None:
    assert disk_rate(tmp_path, 0.01) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_wrong_argument_ends_the_program_with_status_2() -> None:
    command = [sys.executable, "benchmarks/sustained.py", "--kind", "sync", "--rate", "-1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--rate -1" in done.stderr


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"kind": "sync"}, ["data/broker-a-0", "data/broker-a-1"]),
        ({"kind": "fenced"}, ["data/broker-a-1", "data/broker-a-2", "data/broker-a-3"]),
        ({"kind": "sync", "rocketmq": True}, ["master", "slave"]),
    ],
)
def test_each_node_is_on_the_disk_it_was_given(
    asked: dict[str, object], names: list[str], tmp_path: Path
) -> None:
    disks = [tmp_path / f"disk{number}" for number in range(len(names))]
    for disk in disks:
        disk.mkdir()
    given = {name: getattr(GOOD, name) for name in Options.__struct_fields__}
    given |= {**asked, "disks": [str(disk) for disk in disks]}
    with ExitStack() as stack:
        place_nodes(stack, tmp_path / "group", Options(**given))
        for name, disk in zip(names, disks, strict=True):
            assert (tmp_path / "group" / name).resolve().parent == disk
    assert [list(disk.iterdir()) for disk in disks] == [[] for _ in names]


@pytest.mark.slow
def test_a_program_that_is_told_to_end_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/sustained.py", "--kind", "async", "--rate", "20"]
    with subprocess.Popen(
        [*command, "--seconds", "600", "--interval", "1"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    # Beside it stays the directory that sockets of this user's clusters are in.
    assert list(tmp_path.glob("tandem-bench-*")) == []


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "load"),
    [*((kind, ("--rate", "20")) for kind in KINDS), ("sync", ("--own-share", "1"))],
)
def test_a_short_run_of_each_kind_ends_in_sync(
    kind: str, load: tuple[str, str], tmp_path: Path
) -> None:
    fault = ["--fault", "slow", "--fault-seconds", "1"] if FOLLOWERS[kind] else []
    done = subprocess.run(
        [
            *(sys.executable, "benchmarks/sustained.py", "--kind", kind, *load),
            *("--seconds", "4", "--interval", "1", "--bound", str(PATIENCE_SECONDS), *fault),
            *("--cold-reader", "--cleaning"),
        ],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n") >= 5
    assert done.stdout.count("in sync") == bool(fault)
    assert ("the group takes" in done.stderr) == ("--own-share" in load)
