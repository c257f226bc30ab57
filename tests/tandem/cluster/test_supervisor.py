import os
import signal
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from tandem import __version__
from tandem.audit_line import AuditLine
from tandem.cluster import (
    AlreadyRunningError,
    CoordinatorAddressError,
    CoordinatorSettings,
    LocalCluster,
    NodeCommandError,
    NodeStartError,
    NodeState,
    NoNodeNamedError,
    NotRunningError,
    OrderRefusedError,
    SupervisorGoneError,
    UnknownNodeError,
)
from tandem.cluster.control import (
    VERSION,
    Command,
    Reply,
    Request,
    send_request,
    socket_path,
)
from tandem.cluster.errors import AuditFileError, OrderVersionError
from tandem.cluster.spec import ClusterSpec
from tandem.cluster.supervisor import is_of_this_user, peer_of, supervise
from tandem.cluster_file.choices import CoordinatorKind
from tests.support.patience import PATIENCE_SECONDS
from tests.tandem.cluster.fakes import fake_command, fake_spec, fenced_spec

pytestmark = pytest.mark.fault


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


async def ask(spec: ClusterSpec, command: Command, node: str | None = None) -> Reply:
    request = partial(send_request, spec.file, Request(command, node))
    with trio.fail_after(PATIENCE_SECONDS):
        return await trio.to_thread.run_sync(request)


@asynccontextmanager
async def supervised(
    spec: ClusterSpec, command: Callable[[Path, str], list[str]]
) -> AsyncIterator[trio.Event]:
    """A supervisor in the background of the block; the event tells that it has ended."""
    up, ended = trio.Event(), trio.Event()

    def ready(_cluster: LocalCluster) -> None:
        up.set()

    async def run() -> None:
        await supervise(spec, ready=ready, command=command)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with trio.fail_after(PATIENCE_SECONDS):
            await up.wait()
            yield ended
        nursery.cancel_scope.cancel()


def trail_of(spec: ClusterSpec) -> list[AuditLine]:
    text = spec.log_file("supervisor.audit").read_bytes()
    return [msgspec.json.decode(line, type=AuditLine) for line in text.splitlines()]


def states(reply: Reply) -> list[NodeState]:
    return [node.state for node in reply.nodes]


async def test_commands_are_carried_out_and_answered_with_the_new_states(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a", "b")
    async with supervised(spec, fake_command()):
        reply = await ask(spec, "status")
        assert (reply.pid, states(reply)) == (os.getpid(), [NodeState.RUNNING] * 2)
        assert states(await ask(spec, "kill", "b")) == [NodeState.RUNNING, NodeState.STOPPED]
        assert states(await ask(spec, "start")) == [NodeState.RUNNING] * 2
        assert states(await ask(spec, "stop", "a")) == [NodeState.STOPPED, NodeState.RUNNING]
        assert states(await ask(spec, "restart", "a")) == [NodeState.RUNNING] * 2
        assert states(await ask(spec, "pause", "a")) == [NodeState.PAUSED, NodeState.RUNNING]
        assert states(await ask(spec, "resume", "a")) == [NodeState.RUNNING] * 2


async def test_orders_are_in_the_audit_trail_with_what_came_of_them(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a", "b")
    async with supervised(spec, fake_command()) as ended:
        await ask(spec, "status")
        await ask(spec, "kill", "b")
        with pytest.raises(OrderRefusedError):
            await ask(spec, "kill", "b")
        with pytest.raises(OrderRefusedError):
            await ask(spec, "stop")
        await ask(spec, "down")
        await ended.wait()
    lines = trail_of(spec)
    assert [(line.request, line.about, line.result) for line in lines] == [
        ("kill", ["Node:b"], "SUCCESS"),
        ("kill", ["Node:b"], "NodeCommandError"),
        ("stop", [], "NoNodeNamedError"),
        ("down", [], "SUCCESS"),
    ]
    assert [bool(line.why) for line in lines] == [False, True, True, False]
    assert {line.node for line in lines} == {"supervisor"}
    assert {line.from_ for line in lines} == {f"process {os.getpid()}"}
    assert stat.S_IMODE(spec.log_file("supervisor.audit").stat().st_mode) == 0o600


async def test_a_cluster_whose_orders_cannot_be_written_does_not_start(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a")
    spec.log_file("supervisor.audit").mkdir(parents=True)
    with pytest.raises(AuditFileError) as caught:
        await supervise(spec, ready=lambda _: pytest.fail("ready"), command=fake_command())
    assert caught.value.file == spec.log_file("supervisor.audit")


async def test_down_is_answered_when_all_nodes_have_stopped(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a", "b")
    async with supervised(spec, fake_command()) as ended:
        assert states(await ask(spec, "down")) == [NodeState.STOPPED] * 2
        await ended.wait()
        assert not socket_path(spec.file).exists()
        with pytest.raises(NotRunningError):
            await ask(spec, "status")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_stops_it(tmp_path: Path, number: signal.Signals) -> None:
    spec = fake_spec(tmp_path, "a")
    async with supervised(spec, fake_command()) as ended:
        os.kill(os.getpid(), number)
        await ended.wait()
    assert [(line.request, line.from_) for line in trail_of(spec)] == [("down", number.name)]


async def test_a_second_signal_kills_what_is_still_stopping(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a")
    async with supervised(spec, fake_command(a="stubborn")) as ended:
        os.kill(os.getpid(), signal.SIGINT)
        while states(await ask(spec, "status")) != [NodeState.STOPPING]:
            await trio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)
        with trio.fail_after(PATIENCE_SECONDS):
            await ended.wait()


async def test_a_signal_while_nodes_start_stops_them(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a")

    async def interrupt() -> None:
        # Inside the nursery of the supervisor, or this signal would end the tests.
        while not socket_path(spec.file).exists():
            await trio.sleep(0.005)
        while states(await ask(spec, "status")) != [NodeState.STARTING]:
            await trio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt)
        with trio.fail_after(PATIENCE_SECONDS):
            await supervise(
                spec, ready=lambda _: pytest.fail("ready"), command=fake_command(a="silent")
            )


async def test_a_node_that_does_not_start_ends_it_and_stops_the_others(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a", "b")
    told: list[tuple[str, NodeState]] = []
    with pytest.raises(NodeStartError) as caught:
        await supervise(
            spec,
            ready=lambda _: pytest.fail("ready"),
            observer=lambda node: told.append((node.name, node.state)),
            command=fake_command(b="broken"),
        )
    assert (caught.value.name, caught.value.exit_status) == ("b", 3)
    assert told[-1] == ("a", NodeState.STOPPED)


async def test_a_coordinator_that_cannot_be_served_ends_it_before_a_node_starts(
    tmp_path: Path,
) -> None:
    told: list[NodeState] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        spec = fenced_spec(tmp_path, taken.getsockname()[1], "a")
        with pytest.raises(CoordinatorAddressError):
            await supervise(
                spec,
                ready=lambda _: pytest.fail("ready"),
                observer=lambda node: told.append(node.state),
                command=fake_command(),
            )
    assert told == []


async def test_a_cluster_whose_etcd_is_away_is_up_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandem.cluster.supervisor.MASTERS_SECONDS_MAX", 0.2)
    spec = msgspec.structs.replace(
        fenced_spec(tmp_path, 1, "a"),
        coordinator=CoordinatorSettings(
            kind=CoordinatorKind.ETCD, endpoints=["http://127.0.0.1:1"]
        ),
    )
    async with supervised(spec, fake_command()):
        reply = await ask(spec, "status")
        assert reply.nodes[0].role == "NODE"
        assert reply.coordinator_trouble == (
            "no connection to http://127.0.0.1:1: Connection refused"
        )


async def test_a_second_supervisor_of_the_same_file_is_refused(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a")
    async with supervised(spec, fake_command()):
        with pytest.raises(AlreadyRunningError):
            await supervise(spec, ready=lambda _: None, command=fake_command())
        assert states(await ask(spec, "status")) == [NodeState.RUNNING]


async def refusal_of(spec: ClusterSpec, command: Command, node: str | None) -> str:
    with pytest.raises(OrderRefusedError) as caught:
        await ask(spec, command, node)
    return caught.value.refusal


async def test_refusals_come_back_in_words_and_with_their_class(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a")
    async with supervised(spec, fake_command()):
        with pytest.raises(OrderRefusedError, match="no node is named 'z'; the cluster has a"):
            await ask(spec, "kill", "z")
        assert await refusal_of(spec, "kill", "z") == UnknownNodeError.__name__
        assert await refusal_of(spec, "kill", None) == NoNodeNamedError.__name__
        assert await refusal_of(spec, "start", "a") == NodeCommandError.__name__


async def test_an_order_of_a_later_version_is_refused_and_one_with_more_fields_is_not(
    tmp_path: Path,
) -> None:
    spec = fake_spec(tmp_path, "m")
    async with supervised(spec, fake_command()):
        reply = await ask(spec, "status")
        assert (reply.version, reply.program) == (VERSION, __version__)
        later = Request("status", version=VERSION + 1)
        with pytest.raises(OrderRefusedError) as caught:
            await trio.to_thread.run_sync(send_request, spec.file, later)
        assert caught.value.refusal == OrderVersionError.__name__
        stream = await trio.open_unix_socket(socket_path(spec.file))
        async with stream:
            await stream.send_all(b'{"command":"status","later":[1]}\n')
            said = b"".join([part async for part in stream])
        assert msgspec.json.decode(said, type=Reply).error == ""


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"hello\n",
        b'{"command": "fly"}\n',
        b"\xff" * 65_536,
        b"[" * 65_536,
        b'{"command":"kill","node":"\xff"}\n',
        b'{"command":"status","other":' + b"[" * 5_000 + b"]" * 5_000 + b"}\n",
    ],
)
async def test_nonsense_on_the_socket_is_refused_and_changes_nothing(
    tmp_path: Path, line: bytes
) -> None:
    spec = fake_spec(tmp_path, "a")
    async with supervised(spec, fake_command()):
        stream = await trio.open_unix_socket(socket_path(spec.file))
        async with stream:
            await stream.send_all(line)
            stream.socket.shutdown(socket.SHUT_WR)
            answer = await stream.receive_some(65_536)
        assert b'"error":"' in answer
        assert b'"error":""' not in answer
        assert states(await ask(spec, "status")) == [NodeState.RUNNING]


async def test_a_client_that_goes_away_is_let_go(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a")
    async with supervised(spec, fake_command()):
        for _ in range(3):
            stream = await trio.open_unix_socket(socket_path(spec.file))
            await stream.send_all(b'{"command": "status"}\n')
            await stream.aclose()
        assert states(await ask(spec, "status")) == [NodeState.RUNNING]


async def test_who_connects_is_known_by_the_kernel_and_has_to_be_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = trio.socket.socketpair()
    with near, far:
        assert peer_of(near) == (os.getpid(), os.getuid())
    assert [is_of_this_user(uid, 1000) for uid in (1000, 0, 1001)] == [True, True, False]
    spec = fake_spec(tmp_path, "a")
    async with supervised(spec, fake_command()):
        assert stat.S_IMODE(socket_path(spec.file).stat().st_mode) == 0o600
        with monkeypatch.context() as other:
            other.setattr("tandem.cluster.supervisor.is_of_this_user", lambda *_: False)
            with pytest.raises(SupervisorGoneError):
                await ask(spec, "kill", "a")
        assert states(await ask(spec, "status")) == [NodeState.RUNNING]
    assert [line.result for line in trail_of(spec)] == ["NO_PERMISSION"]
