"""What a test can do to a cluster; one of each kind serves all tests here."""

import time
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest
import trio

import tandem
from tandem.cluster import NodeState, NodeStatus, UnknownNodeError
from tandem.testing import Fault, RunningCluster
from tandem.testing.errors import FaultNeed, FaultNotPossibleError
from tandem.testing.plugin import MakeTandemCluster
from tandem.wire.ha_status import ReplicaStatus
from tests.support.patience import PATIENCE_MS, PATIENCE_SECONDS, wait_until
from tests.tandem.cluster.fakes import fenced_spec
from tests.tandem.drill.samples import status

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("testing_cluster")]

MASTER, SLAVE = "broker-a-0", "broker-a-1"

NODE: Final[dict[str, Any]] = {"role": "NODE", "address": "", "starts_count": 1, "last_exit": ""}


@pytest.fixture
def cluster(tandem_session_cluster: RunningCluster) -> RunningCluster:
    return tandem_session_cluster


def send(cluster: RunningCluster, topic: str, body: bytes = b"one") -> tandem.SendStatus:
    with tandem.BlockingProducer(
        cluster.name_servers, group="test", retry_times_when_send_failed=0
    ) as producer:
        return producer.send(tandem.Message(topic, body)).status


def bodies(cluster: RunningCluster, topic: str) -> list[bytes]:
    with tandem.BlockingPullConsumer(cluster.name_servers, group="test") as consumer:
        return sorted(message.body for message in consumer.messages(topic, until_end=True))


def test_it_says_what_there_is(cluster: RunningCluster) -> None:
    assert cluster.nodes == [MASTER, SLAVE]
    assert cluster.master() == cluster.wait_for_master() == MASTER
    assert not cluster.is_fenced
    assert len(cluster.secret.strip()) == 64
    assert cluster.file.name == "cluster.yaml"
    assert (cluster.store_directory(MASTER) / "commitlog").is_dir()
    assert "this node serves at" in cluster.log_text(SLAVE)
    with pytest.raises(UnknownNodeError) as caught:
        cluster.log_text("broker-a-7")
    assert caught.value.name == "broker-a-7"


def test_a_member_of_the_set_that_does_not_follow_is_not_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one is that was killed and started again, before its master has seen either."""
    one = RunningCluster(fenced_spec(tmp_path, 1, "a", "b"))
    nodes = [NodeStatus(name=name, state=NodeState.RUNNING, pid=1, **NODE) for name in "ab"]
    gone = ReplicaStatus(name="b", connected=False, in_sync=True)
    back = msgspec.structs.replace(gone, connected=True)
    for replica, missing in ((gone, ["b"]), (back, [])):
        said = msgspec.structs.replace(status("a", "a", 1), isr=["a", "b"], replicas=[replica])
        monkeypatch.setattr(one, "status", lambda: nodes)
        monkeypatch.setattr(one, "_master_status", lambda _, said=said: said)
        assert one._missing(cast("tandem.BlockingAdmin", None)) == missing


def test_who_was_found_is_named_whoever_is_master_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RunningCluster(fenced_spec(tmp_path, 1, "a", "b"))
    masters = iter(["a", "", "b", "a"])
    monkeypatch.setattr(one, "_master", lambda _: next(masters))
    monkeypatch.setattr(RunningCluster, "access", tandem.ClusterAccess("127.0.0.1:1"))
    assert one.wait_for_master(other_than="a") == "b"


def test_each_topic_is_new_and_is_there(cluster: RunningCluster) -> None:
    first, second = cluster.topic(), cluster.topic(queues=2)
    assert first != second
    with tandem.BlockingAdmin(cluster.name_servers) as admin:
        assert [data.write_queue_nums for data in admin.topic_route(second).queue_datas] == [2]
    assert send(cluster, first) is tandem.SendStatus.SEND_OK
    assert (bodies(cluster, first), bodies(cluster, second)) == ([b"one"], [])


async def test_nodes_can_be_hurt_and_all_is_well_after_recovery(cluster: RunningCluster) -> None:
    topic = cluster.topic()
    cluster.kill(SLAVE)
    states = [node.state for node in cluster.status()]
    assert states == [NodeState.RUNNING, NodeState.STOPPED]
    with tandem.BlockingAdmin(cluster.name_servers) as admin:
        # The master sees its end by way of the proxies, which are another process.
        wait_until(lambda: admin.ha_runtime_info(cluster.name_servers[0]).in_sync_slave_nums == 0)
    async with tandem.Producer(cluster.name_servers, group="test") as producer:
        with trio.fail_after(PATIENCE_SECONDS):
            result = await producer.send(tandem.Message(topic, b"one"))
    assert result.status is tandem.SendStatus.SLAVE_NOT_AVAILABLE
    cluster.start(SLAVE)
    cluster.wait_in_sync()
    cluster.restart(MASTER)
    cluster.stop(SLAVE)
    cluster.recover()
    assert [node.state for node in cluster.status()] == [NodeState.RUNNING] * 2
    assert send(cluster, topic) is tandem.SendStatus.SEND_OK
    assert cluster.kill_master() == MASTER
    with pytest.raises(TimeoutError, match=r"no master in 0\.05 s"):
        cluster.wait_for_master(seconds_max=0.05)


def test_what_the_test_before_has_killed_is_up_again(cluster: RunningCluster) -> None:
    assert [node.state for node in cluster.status()] == [NodeState.RUNNING] * 2
    assert not cluster.is_hurt


def test_a_frozen_node_goes_on_with_the_end_of_the_block(cluster: RunningCluster) -> None:
    with cluster.freeze(SLAVE):
        assert cluster.status()[1].state is NodeState.PAUSED
    assert cluster.status()[1].state is NodeState.RUNNING
    with cluster.freeze(SLAVE):
        cluster.thaw(SLAVE)
    with cluster.freeze(SLAVE):
        cluster.kill(SLAVE)
    assert cluster.status()[1].state is NodeState.STOPPED


@pytest.mark.parametrize("direction", ["both", "out", "in"])
def test_a_link_that_is_cut_holds_what_the_slave_needs_until_it_is_whole(
    make_tandem_session_cluster: MakeTandemCluster, direction: str
) -> None:
    cluster = quick_cluster(make_tandem_session_cluster)
    topic = cluster.topic()
    # Bytes to the slave, or its reports back: without either the master does not know it safe.
    fault: Fault = cluster.cut(MASTER, SLAVE, direction=direction)  # type: ignore[arg-type]
    assert send(cluster, topic) is tandem.SendStatus.FLUSH_SLAVE_TIMEOUT
    fault.undo()
    cluster.wait_in_sync()
    # On a busy machine a slave may need longer than this cluster gives it.
    wait_until(lambda: send(cluster, topic) is tandem.SendStatus.SEND_OK)


_quick: list[RunningCluster] = []


def quick_cluster(make: MakeTandemCluster) -> RunningCluster:
    """One whose sends do not wait for long, once."""
    if not _quick:
        _quick.append(make(nodes=2, settings={"replication": {"slave_timeout_ms": 200}}))
    return _quick[0]


def test_a_slow_link_delays_what_waits_for_it(cluster: RunningCluster) -> None:
    topic = cluster.topic()
    with cluster.slow_link(MASTER, SLAVE, delay_ms=150):
        begun = time.monotonic()
        assert send(cluster, topic) is tandem.SendStatus.SEND_OK
        # There, and the report back.
        assert time.monotonic() - begun > 0.3
    begun = time.monotonic()
    with cluster.slow_link(MASTER, SLAVE, bytes_per_second=100_000, direction="out"):
        for _ in range(2):
            assert send(cluster, topic, bytes(30_000)) is tandem.SendStatus.SEND_OK
    assert time.monotonic() - begun > 0.3


def test_clients_reach_a_node_that_is_cut_off(cluster: RunningCluster) -> None:
    topic = cluster.topic()
    send(cluster, topic)
    with cluster.partition(SLAVE), tandem.BlockingAdmin(cluster.name_servers) as admin:
        address = cluster.spec.node(SLAVE).client_address
        # A slave's queues follow its log some milliseconds later.
        wait_until(lambda: sum(admin.max_offset(address, topic, queue) for queue in range(4)) == 1)


def test_faults_that_make_no_sense_are_refused_with_words(
    cluster: RunningCluster, tandem_session_node: RunningCluster
) -> None:
    with pytest.raises(UnknownNodeError):
        cluster.partition("broker-a-7")
    with pytest.raises(UnknownNodeError):
        cluster.kill("broker-a-7")
    with pytest.raises(UnknownNodeError) as unknown:
        cluster.cut(MASTER, "coordinator")
    assert unknown.value.name == "coordinator"
    with pytest.raises(FaultNotPossibleError) as caught:
        cluster.slow_link(MASTER, MASTER, delay_ms=1)
    assert caught.value.need is FaultNeed.OTHER_NODE
    with pytest.raises(
        FaultNotPossibleError, match=r"make_tandem_cluster\(disk_mib=64\)"
    ) as caught:
        cluster.fill_disk(MASTER)
    assert caught.value.need is FaultNeed.DISKS
    with pytest.raises(FaultNotPossibleError, match=r"make_tandem_cluster.nodes=2.") as caught:
        tandem_session_node.partition(MASTER)
    assert caught.value.need is FaultNeed.PROXIES
    assert not cluster.is_hurt


def test_a_full_disk_is_full_until_it_has_room(make_tandem_cluster: MakeTandemCluster) -> None:
    cluster = make_tandem_cluster(nodes=1, disk_mib=8)
    topic = cluster.topic()
    before = send(cluster, topic)
    fault = cluster.fill_disk(MASTER)
    with pytest.raises(tandem.BrokerError, match="No space left on device"):
        for _ in range(200):
            send(cluster, topic, bytes(60_000))
    assert list(cluster.spec.node(MASTER).directory.iterdir()) == []
    fault.undo()
    assert send(cluster, topic) is before
    # It is the cluster's own, and not the test's: a new life of the node finds it.
    cluster.kill(MASTER)
    cluster.start(MASTER)
    assert b"one" in bodies(cluster, topic)


def test_a_fenced_group_replaces_its_master(tandem_session_fenced_cluster: RunningCluster) -> None:
    cluster = tandem_session_fenced_cluster
    topic = cluster.topic()
    with tandem.BlockingProducer(
        cluster.name_servers, group="test", send_msg_timeout_ms=PATIENCE_MS
    ) as producer:
        first = producer.send(tandem.Message(topic, b"one"))
        killed = cluster.kill_master()
        second = producer.send(tandem.Message(topic, b"two"))
    assert (first.status, second.status) == (tandem.SendStatus.SEND_OK,) * 2
    assert cluster.wait_for_master(other_than=killed) == cluster.master()
    cluster.start(killed)
    cluster.wait_in_sync()
    # What a busy machine was slow to copy was sent again, and is there twice.
    assert set(bodies(cluster, topic)) == {b"one", b"two"}


def test_a_master_that_is_cut_off_loses_its_place(
    make_tandem_cluster: MakeTandemCluster,
) -> None:
    cluster = make_tandem_cluster(fenced=True, settings={"coordinator": {"lease_ttl_ms": 2_000}})
    topic = cluster.topic()
    first = cluster.wait_for_master()
    with cluster.partition(first):
        second = cluster.wait_for_master(other_than=first)
    cluster.wait_in_sync()
    with cluster.cut(second, "coordinator"):
        cluster.wait_for_master(other_than=second)
        with pytest.raises(TimeoutError, match=rf"{second}\b.* not in sync in 0\.01 s"):
            cluster.wait_in_sync(seconds_max=0.01)
    cluster.wait_in_sync()
    # Such a short lease a busy master may lose once more.
    with tandem.BlockingProducer(
        cluster.name_servers, group="test", resend_until_ok=True, send_msg_timeout_ms=PATIENCE_MS
    ) as producer:
        assert producer.send(tandem.Message(topic, b"one")).status is tandem.SendStatus.SEND_OK
