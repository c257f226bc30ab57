from pathlib import Path

import pytest
import trio

import tandem
from tandem.cluster import ClusterConfigError, ControlError, NodeState
from tandem.cluster.control import socket_path
from tandem.cluster.detached import up_for_block
from tandem.cluster.spec import read_spec
from tandem.testing import RunningCluster, running_cluster, write_cluster_file
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.fault, pytest.mark.slow]


def test_the_fixture_serves_plain_code(tandem_cluster: RunningCluster) -> None:
    with tandem.BlockingProducer(tandem_cluster.name_servers, group="test") as producer:
        result = producer.send(tandem.Message("orders", b"one"))
    assert result.status is tandem.SendStatus.SEND_OK
    assert (tandem_cluster.store_directory("broker-a-0") / "commitlog").is_dir()


async def test_the_fixture_serves_trio_and_nodes_can_be_hurt(
    tandem_cluster: RunningCluster,
) -> None:
    tandem_cluster.kill("broker-a-1")
    states = [node.state for node in tandem_cluster.status()]
    assert states == [NodeState.RUNNING, NodeState.STOPPED]
    async with tandem.Producer(tandem_cluster.name_servers, group="test") as producer:
        with trio.fail_after(PATIENCE_SECONDS):
            result = await producer.send(tandem.Message("orders", b"one"))
    assert result.status is tandem.SendStatus.SLAVE_NOT_AVAILABLE
    tandem_cluster.start("broker-a-1")
    tandem_cluster.pause("broker-a-1")
    tandem_cluster.resume("broker-a-1")
    tandem_cluster.wait_in_sync()
    tandem_cluster.restart("broker-a-0")
    tandem_cluster.stop("broker-a-0")
    assert "serving at" in tandem_cluster.log_text("broker-a-1")


def test_two_clusters_run_side_by_side_and_none_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with running_cluster(tmp_path / "a", slaves_count=0) as first:
        with running_cluster(tmp_path / "b", slaves_count=0) as second:
            assert first.name_servers != second.name_servers
        assert not socket_path(second.spec.file).exists()
        assert [node.state for node in first.status()] == [NodeState.RUNNING]


def test_wrong_settings_are_told(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterConfigError, match=r"replication\.slave_timeout_ms: .*0"),
        running_cluster(tmp_path, settings={"replication": {"slave_timeout_ms": 0}}),
    ):
        pass


def test_a_node_that_does_not_start_is_told(tmp_path: Path) -> None:
    file = write_cluster_file(tmp_path, 0, {})
    with running_cluster(tmp_path, slaves_count=0) as cluster:
        (tmp_path / "other").mkdir()
        other = tmp_path / "other" / "cluster.yaml"
        other.write_bytes(file.read_bytes())
        with (
            pytest.raises(ControlError, match=r"broker-a-0 did not start: .* is in use"),
            up_for_block(read_spec(other)),
        ):
            pass
        assert cluster.status()[0].state is NodeState.RUNNING


def test_a_fenced_group_replaces_its_master(tandem_fenced_cluster: RunningCluster) -> None:
    cluster = tandem_fenced_cluster
    with tandem.BlockingProducer(cluster.name_servers, group="test") as producer:
        first = producer.send(tandem.Message("orders", b"one"))
        killed = cluster.kill_master()
        second = producer.send(tandem.Message("orders", b"two"))
    assert (first.status, second.status) == (tandem.SendStatus.SEND_OK,) * 2
    assert cluster.wait_for_master(other_than=killed) == cluster.master()
    cluster.start(killed)
    cluster.wait_in_sync()
    with tandem.BlockingPullConsumer(cluster.name_servers, group="test") as consumer:
        bodies = {message.body for message in consumer.messages("orders", until_end=True)}
    assert bodies == {b"one", b"two"}
