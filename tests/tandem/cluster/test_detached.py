import os
from pathlib import Path

import pytest

from tandem.cluster import (
    AlreadyRunningError,
    NodeStartError,
    NodeState,
    NotRunningError,
    OrderRefusedError,
    SupervisorGoneError,
    read_spec,
)
from tandem.cluster.control import Request, send_request
from tandem.cluster.detached import supervisor_log, up_detached, up_for_block
from tandem.testing import write_cluster_file

pytestmark = [pytest.mark.fault, pytest.mark.slow]


def test_a_detached_cluster_is_up_until_it_is_told_to_go_down(tmp_path: Path) -> None:
    spec = read_spec(write_cluster_file(tmp_path, 1, {}))
    reply = up_detached(spec)
    try:
        assert [node.state for node in reply.nodes] == [NodeState.RUNNING] * 2
        assert reply.pid != os.getpid()
        with pytest.raises(OrderRefusedError) as caught:
            up_detached(spec)
        assert caught.value.refusal == AlreadyRunningError.__name__
    finally:
        down = send_request(spec.file, Request("down"))
    assert [node.last_exit for node in down.nodes] == ["ended with status 0"] * 2
    assert "broker-a-1 RUNNING" in supervisor_log(spec).read_text()


def test_a_fenced_group_has_its_master_when_it_is_reported_to_be_up(tmp_path: Path) -> None:
    spec = read_spec(write_cluster_file(tmp_path, 1, {}, kind="fenced"))
    with up_for_block(spec) as reply:
        assert sorted(node.role for node in reply.nodes) == ["FOLLOWER", "MASTER"]
        assert reply.coordinator_trouble == ""


def test_a_node_that_cannot_start_is_told_and_nothing_stays_up(tmp_path: Path) -> None:
    spec = read_spec(write_cluster_file(tmp_path, 1, {}))
    spec.node("broker-a-1").directory.parent.mkdir()
    spec.node("broker-a-1").directory.write_text("in the way")
    with pytest.raises(OrderRefusedError, match="broker-a-1") as caught:
        up_detached(spec)
    assert caught.value.refusal == NodeStartError.__name__
    with pytest.raises(NotRunningError):
        send_request(spec.file, Request("status"))


def test_a_supervisor_that_dies_while_starting_is_told_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = read_spec(write_cluster_file(tmp_path, 1, {}))
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(SupervisorGoneError, match=r"supervisor\.log"):
        up_detached(spec)


def test_a_cluster_for_a_block_ends_with_the_block(tmp_path: Path) -> None:
    spec = read_spec(write_cluster_file(tmp_path, 0, {}))
    with up_for_block(spec) as reply:
        assert send_request(spec.file, Request("status")).pid == reply.pid
    with pytest.raises(NotRunningError):
        send_request(spec.file, Request("status"))
    assert "broker-a-0 STOPPED ended with status 0" in supervisor_log(spec).read_text()
