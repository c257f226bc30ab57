"""Every order of an operator, where one may type it: what it says, and what it leaves alone."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import typer.main

from tandem.cli import command_line
from tandem.cluster import owners, spec
from tandem.testing import GROUP, running_fenced_cluster, write_cluster_file
from tandem.wire.group_state import GroupKeys
from tests.support.patience import PATIENCE_SECONDS
from tests.support.processes import NODE, started, wait_output
from tests.tandem.coordinator.real_etcd import Server, embedded_process

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("operators")]

FIRST, SECOND, THIRD = NODES = [f"{GROUP}-{number}" for number in (1, 2, 3)]
KEYS: Final = GroupKeys("DefaultCluster", GROUP)

APP: Final = typer.main.get_command(command_line.app)

DONE: Final = (0, "")
NOT_OURS: Final = (1, "run by themselves")
NOT_UP: Final = (1, "is not up; start it with `tandem cluster up`")
NO_SECRET: Final = (2, "secret cannot be read: No such file")
IN_USE: Final = (1, "is open in a running node; stop the node first")

Expected = tuple[int, str]

BY_SUPERVISOR: Final[list[tuple[str, Expected]]] = [
    ("cluster status", DONE),
    ("cluster pause SECOND", DONE),
    ("cluster resume SECOND", DONE),
    ("cluster kill SECOND", DONE),
    ("cluster start", DONE),
    ("cluster stop SECOND", DONE),
    ("cluster start SECOND", DONE),
    ("cluster restart SECOND", DONE),
    ("cluster down", DONE),
]
"""What is asked of a supervisor, and what it answers. `down` comes last."""

OF_THE_CLUSTER: Final[list[tuple[str, Expected]]] = [
    ("cluster credentials", (0, "secretKey: ")),
    ("ha status", (0, "3 of 3 nodes")),
    ("ha promote SECOND", (0, "SECOND is master of broker-a")),
    ("ha rejoin THIRD", (0, "THIRD copies the log anew")),
    ("ha scrub SECOND", (0, "SECOND looks at its log")),
    ("ha recover-group broker-a", (1, "there is nothing to recover")),
    ("ha resign", (0, "gave up mastership")),
    ("config get min_isr", DONE),
    ("config get fileReservedTime --node FIRST", (0, "72")),
    ("config set fileReservedTime 48", (0, "at 3 nodes")),
    ("topic create Bills", DONE),
    ("topic list", (0, "Bills")),
    ("topic describe Bills", DONE),
    ("topic alter Bills --perm rw", DONE),
    ("topic route Bills", DONE),
    ("produce Bills --body bill --key 42", (0, "SEND_OK 1")),
    ("consume Bills --group payments", (0, "bill")),
    ("group list", (0, "payments")),
    ("group describe payments", DONE),
    ("group reset payments --topic Bills --to earliest", (0, "repeats 1")),
    ("message show --topic Bills --key 42", (0, "bill")),
    ("message resend payments", DONE),
    ("group delete payments --yes", DONE),
    ("topic delete Bills --yes", DONE),
    ("log verify data/FIRST", (0, "sound")),
    ("log repair data/FIRST", IN_USE),
    ("log repair data/FIRST --write", IN_USE),
]
"""What is asked of the nodes, whoever started them."""


class Terminal:
    """Where commands are typed."""

    def __init__(
        self, directory: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.directory = directory
        self._capfd = capfd
        self._monkeypatch = monkeypatch
        monkeypatch.chdir(directory)
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(command_line, "app", APP)

    def type(self, line: str, expected: Expected) -> None:
        """Run a command line, and check what comes of it."""
        status, words = expected
        ended, out, err = self._run(line)
        deadline = time.monotonic() + PATIENCE_SECONDS
        # Refused, and nothing done, until the master before this one follows.
        while line.startswith("ha rejoin") and ended and time.monotonic() < deadline:
            ended, out, err = self._run(line)
        assert ended == status, (line, err)
        assert _named(words) in out + err, (line, out, err)
        assert "Traceback" not in out + err, (line, err)

    def _run(self, line: str) -> tuple[int, str, str]:
        """As `main` does; return status, standard output and standard error."""
        self._monkeypatch.setattr(sys, "argv", ["tandem", *_named(line).split()])
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handlers = [signal.getsignal(number) for number in numbers]
        try:
            ended = command_line._status()
        finally:
            for number, handler in zip(numbers, handlers, strict=True):
                signal.signal(number, handler)
        out, err = self._capfd.readouterr()
        return ended, out, err


@pytest.fixture
def terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    return Terminal(tmp_path, capfd, monkeypatch)


def _named(text: str) -> str:
    for word, name in zip(("FIRST", "SECOND", "THIRD"), NODES, strict=True):
        text = text.replace(word, name)
    return text


@contextmanager
def by_themselves(directory: Path) -> Iterator[Server]:
    """Three nodes, started one by one, and a coordinator that no supervisor serves."""
    coordinator = embedded_process(directory)
    password = directory / "password"
    password.touch(0o600)
    password.write_text(coordinator.password)
    section: dict[str, Any] = {
        "kind": "etcd",
        "endpoints": [coordinator.endpoint],
        "user": coordinator.user,
        "password_file": password.name,
    }
    file = write_cluster_file(directory, 2, {"coordinator": section}, kind="fenced")
    coordinator.start()
    try:
        with ExitStack() as stack:
            nodes = [
                stack.enter_context(started([*NODE, "--config", str(file), "--name", name]))
                for name in NODES
            ]
            for node in nodes:
                wait_output(node, "serving at")
            yield coordinator
    finally:
        coordinator.kill()


async def leases_of(coordinator: Server) -> dict[str, int]:
    """Under which lease each record of the group is, once there is a master."""
    client = coordinator.client()
    try:
        await coordinator.wait_healthy()
        while True:
            values = (await client.read(KEYS.prefix)).values
            leases = {key: record.lease_id for key, record in values.items()}
            if KEYS.leader in leases and sum(key.startswith(KEYS.nodes) for key in leases) == 3:
                return leases
            await trio.sleep(0.02)
    finally:
        await client.aclose()


def test_under_a_supervisor_every_order_is_carried_out(terminal: Terminal) -> None:
    with running_fenced_cluster(terminal.directory) as cluster:
        cluster.wait_in_sync()
        terminal.type("cluster up --detach", (1, "is up already"))
        for line, expected in BY_SUPERVISOR[:-1]:
            terminal.type(line, expected)
        cluster.wait_in_sync()
        terminal.type("cluster logs --tail 1", (0, GROUP))
        for line, expected in OF_THE_CLUSTER:
            terminal.type(line, expected)
        cluster.wait_in_sync()
        terminal.type(*BY_SUPERVISOR[-1])
        terminal.type("cluster status", NOT_UP)


def test_nodes_that_run_by_themselves_are_left_alone_and_said_so(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "ENDING_SECONDS_MAX", 0.0)
    with by_themselves(terminal.directory) as coordinator:
        before = trio.run(leases_of, coordinator)
        terminal.type("cluster logs", NOT_OURS)
        for line, _ in BY_SUPERVISOR:
            terminal.type(line, NOT_OURS)
        terminal.type("cluster up", NOT_OURS)
        terminal.type("cluster up --detach", NOT_OURS)
        assert trio.run(leases_of, coordinator) == before
        # Not only said: a node has the directory, and nobody else has been in the group's way.
        terminal.type("ha status", (0, "epoch 1, and takes messages"))
        for line, expected in OF_THE_CLUSTER:
            terminal.type(line, expected)


def test_where_nothing_runs_the_way_to_start_it_is_said(terminal: Terminal) -> None:
    write_cluster_file(terminal.directory, 2, {}, kind="fenced")
    for line, _ in BY_SUPERVISOR:
        terminal.type(line, NOT_UP)
    terminal.type("cluster logs", NOT_UP)
    terminal.type("cluster credentials", NO_SECRET)
    terminal.type("cluster init", (2, "is there already"))
    assert [path.name for path in terminal.directory.iterdir()] == ["cluster.yaml"]


def test_nothing_is_written_to_an_empty_directory(
    terminal: Terminal, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The example is that of the package; a cluster that a person runs with it is left alone.
    example = write_cluster_file(tmp_path_factory.mktemp("package"), 2, {}, kind="fenced")
    monkeypatch.setattr(spec, "_example", lambda: example)
    for line, _ in BY_SUPERVISOR:
        terminal.type(line, NOT_UP)
    terminal.type("cluster logs", NOT_UP)
    terminal.type("cluster credentials", NO_SECRET)
    assert not list(terminal.directory.iterdir())


def test_nodes_of_other_machines_are_not_started_here(terminal: Terminal) -> None:
    addresses = " ".join(f"--address 198.51.100.{number}" for number in (1, 2, 3))
    terminal.type(f"cluster init --etcd http://198.51.100.9:2379 {addresses}", DONE)
    elsewhere = (1, "Start each on its own machine with `python -P -m tandem_server node")
    for line, _ in BY_SUPERVISOR:
        terminal.type(line, elsewhere)
    terminal.type("cluster up", elsewhere)
    terminal.type("cluster up --detach", elsewhere)
    terminal.type("cluster logs", elsewhere)
    assert [path.name for path in terminal.directory.iterdir()] == ["cluster.yaml"]
