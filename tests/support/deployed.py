"""A cluster that somebody has deployed: nodes that a shell starts, and the drill's file of it."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import yaml

from tandem.cluster.spec import ClusterSpec, read_spec
from tandem.testing import Kind, write_cluster_file
from tests.support.paths import ROOT

FIND: Final = (
    "if grep -qs 'State:.[^ZX]' /proc/$(cat pids/$NODE)/status; then cat pids/$NODE; fi 2>/dev/null"
)
"""A process that has ended, and that nobody has reaped, does not run."""

SIGNALS: Final = {
    "find": FIND,
    "stop": "kill $PID",
    "kill": "kill -9 $PID",
    "freeze": "kill -STOP $PID",
    "resume": "kill -CONT $PID",
}

ASKS_SOON: Final = {"transaction_check_interval_ms": 2_000, "transaction_timeout_ms": 1_000}
"""A scenario waits until each open transaction was asked about."""


def in_background(command: str) -> str:
    """A line of a shell that starts a program and notes its process."""
    return f"mkdir -p pids; {command} > $NODE.out 2>&1 < /dev/null & echo $! > pids/$NODE"


def write_file(directory: Path, content: Mapping[str, Any], **commands: str) -> Path:
    """Write a file for `--target processes`, with the commands that signals are."""
    file = directory / "cluster.drill.yaml"
    whole = {**content, "commands": {**SIGNALS, **commands}}
    file.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    return file


def deploy(
    directory: Path,
    kind: Kind = "classic",
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    patience: int = 10,
    **commands: str,
) -> tuple[Path, ClusterSpec]:
    """Write a cluster file and the drill's file of it: three nodes of ours. Nothing runs yet."""
    sections = {"broker": ASKS_SOON, **(settings or {})}
    spec = read_spec(write_cluster_file(directory, 2, sections, kind=kind))
    node = f"PYTHONPATH={ROOT} exec {sys.executable} -P -m tandem_server node"
    start = in_background(f"sh -c '{node} --config cluster.yaml --name $NODE'")
    content = {
        "kind": kind,
        "group": spec.nodes[0].group,
        "patience": patience,
        "name_servers": [each.client_address for each in spec.nodes],
        "nodes": [
            {"name": each.name, "address": each.address, "port": each.port}
            | ({} if "fetch" in commands else {"store": str(each.directory)})
            for each in spec.nodes
        ],
    }
    return write_file(directory, content, start=start, **commands), spec


@contextmanager
def ended_at_last(directory: Path) -> Iterator[None]:
    """Kill what a test has left of a deployed cluster."""
    try:
        yield
    finally:
        for noted in directory.glob("pids/*"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(noted.read_text()), signal.SIGKILL)
