"""What can be asked of `sustained.py`, and what of it cannot be measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

DESCRIPTION: Final = (
    "What does a group take for long, and how long is it out of sync after a fault?"
)
KINDS: Final = ("async", "sync", "fenced", "flushed")
FAULTS: Final = ("stopped", "slow")
FOLLOWERS: Final = {"async": 0, "sync": 1, "fenced": 2, "flushed": 1}
SMALL_FILE_BYTES: Final = 16 << 20


class Options(msgspec.Struct, frozen=True):
    """What was asked for."""

    kind: str
    rate: float | None
    disk_share: list[float] | None
    own_share: list[float] | None
    body_bytes: int
    rocketmq: bool
    seconds: float
    interval: float
    connections: int
    fault: list[str] | None
    fault_seconds: float
    bound: float
    cold_reader: bool
    cleaning: bool
    file_bytes: int
    disks: list[str] | None

    @property
    def shares(self) -> list[float]:
        """The percentages, if rates are given as such."""
        return self.disk_share or self.own_share or []

    @property
    def faults_at(self) -> list[float]:
        """When each fault begins, as a share of a run; the gap after it is as long as any."""
        count = len(self.fault or [])
        return [(number + 1) / (count + 2) for number in range(count)]


def why_not(options: Options) -> str | None:
    """Return what is wrong with the options, in a sentence; None: nothing."""
    shares = options.shares
    seconds, fault_seconds = options.seconds / max(1, len(shares)), options.fault_seconds
    has_fault = options.fault is not None
    rate = options.rate or 0.0
    given = [options.rate, options.disk_share, options.own_share]
    disks = [Path(disk) for disk in options.disks or []]
    nodes_count = 1 + FOLLOWERS[options.kind]
    # What one fault and the next, or the end, are apart.
    apart = 2 / 3 if len(options.faults_at) == 1 else 1 / (len(options.faults_at) + 2)
    complaints = {
        "one of --rate, --disk-share and --own-share is wanted": (
            sum(value is not None for value in given) != 1
        ),
        f"--rate {rate:g} is not between 1 and 1,000,000 messages a second": (
            options.rate is not None and not 1 <= rate <= 1_000_000
        ),
        "--disk-share and --own-share are percentages above 0, up to 200": not all(
            0 < share <= 200 for share in shares
        ),
        f"--body-bytes {options.body_bytes} is not between 1 and 4,000,000": not (
            1 <= options.body_bytes <= 4_000_000
        ),
        "--rocketmq has no kind fenced": options.rocketmq and options.kind == "fenced",
        "--seconds and --interval are more than 0": not (seconds > 0 and options.interval > 0),
        f"--interval {options.interval:g} is longer than the run of {seconds:g} s": (
            options.interval > seconds
        ),
        f"--connections {options.connections} is not between 1 and 1,000": not (
            1 <= options.connections <= 1_000
        ),
        f"--kind {options.kind} has one node: there is no other one for --fault": (
            has_fault and not FOLLOWERS[options.kind]
        ),
        "--fault-seconds and --bound are more than 0": (
            has_fault and not (fault_seconds > 0 and options.bound > 0)
        ),
        f"faults of {fault_seconds:g} s have no room in {seconds:g} s:"
        f" give --seconds {fault_seconds / apart * max(1, len(shares)):g} or more": (
            has_fault and fault_seconds > seconds * apart
        ),
        f"--file-bytes {options.file_bytes} is not between 4 MiB and 1 GiB": not (
            4 << 20 <= options.file_bytes <= 1 << 30
        ),
        "--disks says when files are deleted, and --cleaning does: give one of them": (
            bool(disks) and options.cleaning
        ),
        f"--kind {options.kind} has {nodes_count} nodes: give --disks as many directories": (
            bool(disks) and len(disks) != nodes_count
        ),
        "--disks are directories, each on a file system of its own": not all(
            disk.is_dir() for disk in disks
        )
        or len({disk.stat().st_dev for disk in disks}) != len(disks),
    }
    return next((text for text, is_so in complaints.items() if is_so), None)


def options_of(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; wrong arguments end the program with a sentence and status 2."""
    parser = argparse.ArgumentParser(description=DESCRIPTION)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--rate", type=float, help="messages a second")
    parser.add_argument(
        "--disk-share", type=float, nargs="+", help="percentages of what the disk takes"
    )
    parser.add_argument(
        "--own-share", type=float, nargs="+", help="percentages of what the group takes"
    )
    parser.add_argument("--body-bytes", type=int, default=1_024, help="of a message")
    parser.add_argument("--rocketmq", action="store_true", help="RocketMQ 5.3.3 instead")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds of a line")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--fault", choices=FAULTS, nargs="+")
    parser.add_argument("--fault-seconds", type=float, default=60.0)
    parser.add_argument("--bound", type=float, default=60.0, help="seconds to be in sync again")
    parser.add_argument("--cold-reader", action="store_true")
    parser.add_argument("--cleaning", action="store_true")
    parser.add_argument(
        "--file-bytes", type=int, default=SMALL_FILE_BYTES, help="of a file with --cleaning"
    )
    parser.add_argument("--disks", nargs="+", help="a directory for each node, on its own disk")
    options = Options(**vars(parser.parse_args(arguments)))
    if (reason := why_not(options)) is not None:
        parser.error(reason)
    return options
