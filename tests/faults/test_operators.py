"""Every order of an operator, where one may type it: what it says, and what it leaves alone."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio
import typer.main

from tandem.cli import command_line
from tandem.cli.command_end import status_of
from tandem.cluster import owners, spec
from tandem.testing import GROUP, running_fenced_cluster, write_cluster_file
from tandem.wire.group_state import GroupKeys
from tests.support.patience import PASSES, PATIENCE_SECONDS, PATIENT_LEASE
from tests.support.processes import NODE, started, wait_output
from tests.tandem.coordinator.real_etcd import Server, embedded_process, running_etcd

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("operators")]

FIRST, SECOND, THIRD = NODES = [f"{GROUP}-{number}" for number in (1, 2, 3)]
CLASSIC_NODES: Final = [f"{GROUP}-{number}" for number in (0, 1, 2)]
KEYS: Final = GroupKeys("DefaultCluster", GROUP)

APP: Final = typer.main.get_command(command_line.app)

DONE: Final = (0, "")
NOT_OURS: Final = (1, "run by themselves")
NOT_UP: Final = (1, "is not up; start it with `tandem cluster up`")
NO_SECRET: Final = (2, "secret cannot be read: No such file")
IS_CLASSIC: Final = (2, "is classic: its master is the node with broker_id 0")
IN_USE: Final = (1, "is open in a running node; stop the node first")

Expected = tuple[int, str]
Node = subprocess.Popen[str]

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


OF_A_CLASSIC_CLUSTER: Final[list[tuple[str, Expected]]] = [
    ("cluster credentials", (0, "secretKey: ")),
    ("ha status", (0, "in sync")),
    ("ha promote SECOND", IS_CLASSIC),
    ("ha rejoin THIRD", IS_CLASSIC),
    ("ha scrub SECOND", IS_CLASSIC),
    ("ha recover-group broker-a", IS_CLASSIC),
    ("ha resign", (2, "fenced groups are: none")),
    *(each for each in OF_THE_CLUSTER if not each[0].startswith(("ha ", "cluster "))),
]
"""The same of nodes of which one is the master for good."""


class Terminal:
    """Where commands are typed."""

    def __init__(
        self, directory: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.directory = directory
        self.names: Sequence[str] = NODES
        self._capfd = capfd
        self._monkeypatch = monkeypatch
        monkeypatch.chdir(directory)
        monkeypatch.setenv("TERM", "dumb")

    def type(self, line: str, expected: Expected) -> str:
        """Run a command line, check what comes of it, and return what is printed."""
        status, words = expected
        ended, out, err = self._run(line)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (
            ended != status
            and (line.startswith("ha rejoin") or any(words in err for words in PASSES))
            and time.monotonic() < deadline
        ):
            ended, out, err = self._run(line)
        assert ended == status, (line, err)
        assert self._named(words) in out + err, (line, out, err)
        assert "Traceback" not in out + err, (line, err)
        return out + err

    def _run(self, line: str) -> tuple[int, str, str]:
        """As `main` does; return status, standard output and standard error."""
        self._monkeypatch.setattr(sys, "argv", ["tandem", *shlex.split(self._named(line))])
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handlers = [signal.getsignal(number) for number in numbers]
        try:
            ended = status_of(APP)
        finally:
            for number, handler in zip(numbers, handlers, strict=True):
                signal.signal(number, handler)
        out, err = self._capfd.readouterr()
        return ended, out, err

    def _named(self, text: str) -> str:
        for word, name in zip(("FIRST", "SECOND", "THIRD"), self.names, strict=True):
            text = text.replace(word, name)
        return text


@pytest.fixture
def terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    directory = tmp_path / "my clusters"  # as people call them: what is to be typed has quotes
    directory.mkdir()
    return Terminal(directory, capfd, monkeypatch)


class Case(msgspec.Struct, frozen=True):
    """A group whose nodes run by themselves.

    Attributes:
        orders: What is asked of its nodes, and what comes of it.
        leases: What of it is kept by a coordinator, and under which lease; nothing without one.
    """

    names: Sequence[str]
    nodes: list[Node]
    orders: list[tuple[str, Expected]]
    leases: Callable[[], dict[str, int]]


@contextmanager
def beside_our_coordinator(directory: Path) -> Iterator[Case]:
    """Three nodes of a fenced group, and a coordinator of ours that no supervisor serves."""
    coordinator = embedded_process(directory)
    password = directory / "password"
    password.touch(0o600)
    password.write_text(coordinator.password)
    section = {"user": coordinator.user, "password_file": password.name}
    coordinator.start()
    try:
        with fenced(directory, [coordinator], section) as case:
            yield case
    finally:
        coordinator.kill()


@contextmanager
def on_a_real_etcd(directory: Path) -> Iterator[Case]:
    """Three nodes of a fenced group on an etcd of three."""
    with running_etcd(directory, 3) as members, fenced(directory, members, {}) as case:
        yield case


@contextmanager
def fenced(directory: Path, servers: Sequence[Server], section: dict[str, str]) -> Iterator[Case]:
    for server in servers:
        trio.run(server.wait_healthy)
    endpoints = [server.endpoint for server in servers]
    coordinator = {
        "kind": "etcd",
        "endpoints": endpoints,
        **section,
        **PATIENT_LEASE["coordinator"],
    }
    file = write_cluster_file(directory, 2, {"coordinator": coordinator}, kind="fenced")
    with serving(file, NODES) as nodes:
        yield Case(NODES, nodes, OF_THE_CLUSTER, lambda: trio.run(leases_of, servers[0]))


@contextmanager
def classic(directory: Path) -> Iterator[Case]:
    """A master and two slaves: nobody elects, and there is no coordinator."""
    file = write_cluster_file(directory, 2, {}, kind="classic")
    with serving(file, CLASSIC_NODES) as nodes:
        yield Case(CLASSIC_NODES, nodes, OF_A_CLASSIC_CLUSTER, dict)


@contextmanager
def serving(file: Path, names: Sequence[str]) -> Iterator[list[Node]]:
    """Start nodes one by one, as a person or systemd does."""
    with ExitStack() as stack:
        command = [*NODE, "--config", str(file), "--name"]
        nodes = [stack.enter_context(started([*command, name])) for name in names]
        for node in nodes:
            wait_output(node, "this node serves at")
        yield nodes


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
    with running_fenced_cluster(terminal.directory, settings=PATIENT_LEASE) as cluster:
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


@pytest.mark.parametrize(
    "running",
    [beside_our_coordinator, on_a_real_etcd, pytest.param(classic, marks=pytest.mark.long)],
    ids=lambda each: each.__name__,
)
def test_nodes_that_run_by_themselves_are_left_alone_and_said_so(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    running: Callable[[Path], AbstractContextManager[Case]],
) -> None:
    monkeypatch.setattr(owners, "ENDING_SECONDS_MAX", 0.0)
    with running(terminal.directory) as case:
        terminal.names = case.names
        before = case.leases()
        advised = terminal.type("cluster logs", NOT_OURS)
        # They are asked all the same.
        shown = terminal.type("cluster status", (0, "RUNNING"))
        assert all(f"{node.pid}" in shown for node in case.nodes)
        for line, _ in BY_SUPERVISOR[1:]:
            advised += terminal.type(line, NOT_OURS)
        advised += terminal.type("cluster up", NOT_OURS)
        advised += terminal.type("cluster up --detach", NOT_OURS)
        assert case.leases() == before
        assert [node.poll() for node in case.nodes] == [None] * 3
        # Not only said: a node has the directory, and nobody else has been in the group's way.
        for node in case.nodes:
            assert f"(process {node.pid})" in advised
        for line, expected in case.orders:
            terminal.type(line, expected)
        for line in commands_in(advised):
            shown = terminal.type(line, DONE)
            assert all(name in shown for name in case.names)
        # And what has to be done first, where each was started, is enough.
        for node in case.nodes:
            node.terminate()
        for node in case.nodes:
            node.communicate(timeout=PATIENCE_SECONDS)
        terminal.type("cluster up --detach", (0, "up (supervisor "))
        terminal.type("cluster down", DONE)


def commands_in(text: str) -> set[str]:
    """What an operator is told to type."""
    found = {line.removeprefix("tandem ") for line in re.findall("`(tandem [^`]+)`", text)}
    assert found, text
    return found


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
    terminal.type("cluster status", (1, "SILENT"))
    for line, _ in BY_SUPERVISOR[1:]:
        terminal.type(line, elsewhere)
    terminal.type("cluster up", elsewhere)
    terminal.type("cluster up --detach", elsewhere)
    terminal.type("cluster logs", elsewhere)
    assert [path.name for path in terminal.directory.iterdir()] == ["cluster.yaml"]
