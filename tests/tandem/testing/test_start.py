from pathlib import Path

import pytest

import tandem
from tandem.cluster import ClusterConfigError, NodeStartError, NodeState, OrderRefusedError
from tandem.cluster.control import socket_path
from tandem.testing import running_cluster, running_fenced_cluster, start
from tandem.testing.addresses import Network
from tandem.testing.fork_server import close_fork_server
from tests.support.patience import wait_until
from tests.support.processes import all_gone, processes_with

pytestmark = [pytest.mark.fault, pytest.mark.slow]


def test_two_clusters_run_side_by_side_and_none_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with running_cluster(tmp_path / "a", slaves_count=0) as first:
        with running_cluster(tmp_path / "b", slaves_count=0) as second:
            assert first.name_servers != second.name_servers
            pids = [node.pid for node in second.status() if node.pid]
        assert not socket_path(second.spec.file).exists()
        assert all_gone(pids)
        # At once: nothing that it keeps is needed any more.
        log = second.spec.log_file("supervisor").read_text()
        assert "broker-a-0 STOPPED ended by SIGKILL" in log
        assert [node.state for node in first.status()] == [NodeState.RUNNING]


def test_wrong_settings_are_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterConfigError, match=r"replication\.slave_timeout_ms: .*0"),
        running_cluster(tmp_path, settings={"replication": {"slave_timeout_ms": 0}}),
    ):
        pass


def test_a_node_that_does_not_start_is_reported_and_nothing_stays_up(tmp_path: Path) -> None:
    node = tmp_path / "data" / "broker-a-1"
    node.parent.mkdir()
    node.write_text("in the way")
    with (
        pytest.raises(OrderRefusedError, match="broker-a-1") as caught,
        running_cluster(tmp_path, proxied=True),
    ):
        pass
    assert caught.value.refusal == NodeStartError.__name__
    assert not any("broker-a" in line for line in processes_with(str(tmp_path)))


def test_a_port_that_is_taken_meanwhile_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    with running_cluster(tmp_path, slaves_count=0) as cluster:
        node = cluster.spec.nodes[0]
        prefix = node.address.rpartition(".")[0]

        class Claimed:
            def __enter__(self) -> Network:
                return Network(prefix=prefix)

            def __exit__(self, *_: object) -> None:
                pass

        monkeypatch.setattr(start, "claimed_network", Claimed)
        with (
            pytest.raises(OrderRefusedError, match=r"broker-a-0 .* is in use") as caught,
            running_cluster(tmp_path / "other", slaves_count=0),
        ):
            pass
        assert caught.value.refusal == NodeStartError.__name__
        assert cluster.status()[0].state is NodeState.RUNNING


@pytest.mark.parametrize("nodes", [0, 10])
def test_a_cluster_has_one_to_nine_nodes(tmp_path: Path, nodes: int) -> None:
    with (
        pytest.raises(ValueError, match=f"{nodes} nodes: give 1 to 9"),
        running_fenced_cluster(tmp_path, nodes_count=nodes),
    ):
        pass


@pytest.mark.parametrize("disk_mib", [-1, 3])
def test_a_disk_has_room_for_a_store(tmp_path: Path, disk_mib: int) -> None:
    with (
        pytest.raises(ValueError, match=f"disk_mib is {disk_mib}: give 4 or more"),
        running_cluster(tmp_path, disk_mib=disk_mib),
    ):
        pass


def test_after_the_end_of_the_server_another_is_started(tmp_path: Path) -> None:
    close_fork_server()
    with running_cluster(tmp_path, slaves_count=0) as cluster:
        close_fork_server()
        # It is the supervisor's fork server that has the nodes.
        cluster.kill("broker-a-0")
        cluster.start("broker-a-0")
        with tandem.BlockingProducer(cluster.name_servers, group="test") as producer:
            producer.send(tandem.Message("orders", b"one"))
        pid = cluster.status()[0].pid
    assert pid is not None
    wait_until(lambda: all_gone([pid]))
