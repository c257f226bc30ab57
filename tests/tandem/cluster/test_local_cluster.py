import os
import signal
from pathlib import Path

import pytest
import trio

from tandem.cluster import (
    LocalCluster,
    NodeCommandError,
    NodeStartError,
    NodeState,
    NodeStatus,
    NotOursError,
    UnknownNodeError,
    owners,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.tandem.cluster.fakes import fake_command, fake_spec, held

pytestmark = pytest.mark.fault


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def states(cluster: LocalCluster) -> list[NodeState]:
    return [node.state for node in cluster.status()]


async def wait_state(cluster: LocalCluster, name: str, state: NodeState) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while cluster.state(name) is not state:
            await trio.sleep(0.005)


async def test_all_nodes_run_after_start_and_none_is_left_after_the_block(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a", "b", "c"), command=fake_command()) as cluster:
        assert states(cluster) == [NodeState.STOPPED] * 3
        await cluster.start()
        assert states(cluster) == [NodeState.RUNNING] * 3
        pids = [node.pid for node in cluster.status()]
    assert states(cluster) == [NodeState.STOPPED] * 3
    assert [node.last_exit for node in cluster.status()] == ["ended with status 0"] * 3
    assert not any(is_alive(pid) for pid in pids if pid)


async def test_an_error_in_the_block_comes_out_as_it_is_and_leaves_no_node(tmp_path: Path) -> None:
    cluster = LocalCluster(fake_spec(tmp_path, "a"), command=fake_command(a="stubborn"))
    with pytest.raises(ZeroDivisionError):
        async with cluster:
            await cluster.start()
            raise ZeroDivisionError
    assert states(cluster) == [NodeState.STOPPED]
    assert cluster.status()[0].last_exit == "ended by SIGKILL"


async def test_cancelling_the_block_leaves_no_node(tmp_path: Path) -> None:
    cluster = LocalCluster(fake_spec(tmp_path, "a"), command=fake_command())
    with trio.CancelScope() as scope:
        async with cluster:
            await cluster.start()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert states(cluster) == [NodeState.STOPPED]


async def test_a_killed_node_is_stopped_and_can_be_started_again(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a", "b"), command=fake_command()) as cluster:
        await cluster.start()
        await cluster.kill("b")
        assert states(cluster) == [NodeState.RUNNING, NodeState.STOPPED]
        assert cluster.status()[1].last_exit == "ended by SIGKILL"
        await cluster.start("b")
        assert states(cluster) == [NodeState.RUNNING, NodeState.RUNNING]
        assert cluster.status()[1].starts_count == 2


async def test_restart_starts_a_running_node_anew_and_a_stopped_one_too(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        await cluster.restart("a")
        await cluster.restart("a")
        assert cluster.status()[0].starts_count == 2
        assert states(cluster) == [NodeState.RUNNING]


async def test_a_node_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    command = fake_command(a="stubborn")
    async with LocalCluster(fake_spec(tmp_path, "a"), command=command) as cluster:
        await cluster.start()
        await cluster.stop("a", grace_seconds=0.05)
        assert cluster.status()[0].last_exit == "ended by SIGKILL"


async def test_a_node_that_fails_to_start_says_why_and_the_others_run(tmp_path: Path) -> None:
    command = fake_command(b="broken")
    async with LocalCluster(fake_spec(tmp_path, "a", "b"), command=command) as cluster:
        with pytest.raises(NodeStartError) as caught:
            await cluster.start()
        log = cluster.log_file("b")
        assert (caught.value.name, caught.value.exit_status) == ("b", 3)
        assert caught.value.reason == "port 127.0.0.1:10911 is taken"
        assert str(caught.value) == f"b did not start: {caught.value.reason} (log: {log})"
        assert states(cluster) == [NodeState.RUNNING, NodeState.FAILED]


async def test_a_node_that_never_gets_ready_is_killed(tmp_path: Path) -> None:
    command = fake_command(a="silent")
    async with LocalCluster(fake_spec(tmp_path, "a"), command=command) as cluster:
        with pytest.raises(NodeStartError) as caught:
            await cluster.start("a", ready_seconds_max=0.1)
        assert caught.value.exit_status is None
        (node,) = cluster.status()
        assert (node.state, node.starts_count) == (NodeState.STOPPED, 1)


async def test_a_node_killed_while_it_starts_did_not_start(tmp_path: Path) -> None:
    command = fake_command(a="silent")
    async with (
        LocalCluster(fake_spec(tmp_path, "a"), command=command) as cluster,
        trio.open_nursery() as nursery,
    ):

        async def kill_soon() -> None:
            await wait_state(cluster, "a", NodeState.STARTING)
            await cluster.kill("a")

        nursery.start_soon(kill_soon)
        with pytest.raises(NodeStartError) as caught:
            await cluster.start("a")
    assert caught.value.exit_status == -signal.SIGKILL


async def test_an_exit_that_nobody_asked_for_is_failed_and_reported(tmp_path: Path) -> None:
    told: list[NodeStatus] = []
    spec = fake_spec(tmp_path, "a")
    async with LocalCluster(spec, command=fake_command(), observer=told.append) as cluster:
        await cluster.start()
        pid = cluster.status()[0].pid
        assert pid is not None
        os.kill(pid, 9)
        await wait_state(cluster, "a", NodeState.FAILED)
    assert [node.state.value for node in told] == ["STARTING", "RUNNING", "FAILED"]
    assert told[-1].last_exit == "ended by SIGKILL"


async def test_a_paused_node_is_frozen_until_resumed_and_can_be_stopped(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        await cluster.start()
        cluster.pause("a")
        status = Path(f"/proc/{cluster.status()[0].pid}/stat")
        with trio.fail_after(PATIENCE_SECONDS):
            while " T " not in status.read_text():
                await trio.sleep(0.005)
        assert states(cluster) == [NodeState.PAUSED]
        cluster.resume("a")
        assert states(cluster) == [NodeState.RUNNING]
        cluster.pause("a")
        await cluster.stop("a")
        assert cluster.status()[0].last_exit == "ended with status 0"


async def test_a_node_that_prints_much_is_not_held_up(tmp_path: Path) -> None:
    command = fake_command(a="chatty")
    async with LocalCluster(fake_spec(tmp_path, "a"), command=command) as cluster:
        await cluster.start()
        await cluster.stop("a")
        assert cluster.status()[0].last_exit == "ended with status 0"


async def test_commands_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        with pytest.raises(NodeCommandError) as caught:
            await cluster.kill("a")
        assert (caught.value.state, caught.value.wish) == ("STOPPED", "killed")
        with pytest.raises(UnknownNodeError):
            await cluster.start("z")
        await cluster.start()
        with pytest.raises(NodeCommandError) as caught:
            await cluster.start("a")
        assert (caught.value.state, caught.value.wish) == ("RUNNING", "started")


async def test_what_nodes_write_is_appended_to_their_logs(tmp_path: Path) -> None:
    command = fake_command(a="broken")
    async with LocalCluster(fake_spec(tmp_path, "a"), command=command) as cluster:
        for _ in range(2):
            with pytest.raises(NodeStartError):
                await cluster.start("a")
    assert (tmp_path / "data/logs/a.log").read_text().count("is taken") == 2


async def test_a_node_that_runs_by_itself_is_not_started_here_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "ENDING_SECONDS_MAX", 0.0)
    spec = fake_spec(tmp_path, "a", "b")
    with held(spec, "b"):
        with pytest.raises(NotOursError):
            async with LocalCluster(spec, command=fake_command()):
                pass
        assert not spec.log_directory.exists()
        assert not spec.secret_file.exists()
    async with LocalCluster(spec, command=fake_command()) as cluster:
        await cluster.start("a")
        with held(spec, "b"), pytest.raises(NotOursError):
            await cluster.start("b")
        assert states(cluster) == [NodeState.RUNNING, NodeState.STOPPED]
