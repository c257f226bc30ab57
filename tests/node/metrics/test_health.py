from ha.results import ReplicaStanding
from node.figures.node_report import NodeReport
from node.metrics.health import BEHIND_BYTES_MAX, group_ready, live, ready
from tandem.wire.request_headers import HAConnectionRuntimeInfo, HARuntimeInfo
from tests.node.doubles import Broker, FakeReplication


def report_of(replication: FakeReplication) -> NodeReport:
    report, broker = NodeReport(), Broker()
    broker.replication = replication
    report.sources = broker.sources()
    return report


def follower(**standing: object) -> FakeReplication:
    replication = FakeReplication()
    replication.demote("another is master")
    facts = {"role": "FOLLOWER", "follows": True, **standing}
    replication.standing = ReplicaStanding(**facts)  # type: ignore[arg-type]
    return replication


async def test_a_master_that_takes_messages_is_ready() -> None:
    health = ready(report_of(FakeReplication()))
    assert (health.ok, health.role, health.in_sync, health.why) == (True, "MASTER", 1, [])


async def test_a_master_that_takes_none_says_why() -> None:
    replication = FakeReplication()
    replication.demote("the lease is over")
    replication.is_master = True
    health = ready(report_of(replication))
    assert (health.ok, health.why) == (False, ["the lease is over"])


async def test_a_follower_is_ready_if_it_gets_the_log_and_has_nearly_all_of_it() -> None:
    assert ready(report_of(follower(behind_bytes=BEHIND_BYTES_MAX))).ok
    assert ready(report_of(follower())).ok  # of a classic group: nobody says how far it is
    assert not ready(report_of(follower(behind_bytes=BEHIND_BYTES_MAX + 1))).ok
    assert not ready(report_of(follower(follows=False))).ok


async def test_a_node_in_quarantine_or_without_a_store_is_live_and_not_ready() -> None:
    replication = follower()
    replication.is_quarantined = True
    assert ready(report_of(replication)).why == ["in quarantine"]
    assert not ready(NodeReport()).ok
    stopping = report_of(FakeReplication())
    stopping.is_stopping = True
    assert not ready(stopping).ok
    assert live().ok


async def test_a_group_is_well_if_all_of_it_is_in_sync() -> None:
    replication = FakeReplication()
    well = HAConnectionRuntimeInfo(addr="1", slave_ack_offset=1, diff=0, in_sync=True, name="b")
    ill = HAConnectionRuntimeInfo(
        addr="2", slave_ack_offset=-1, diff=9, in_sync=False, name="c", reason="is away"
    )
    replication.info = HARuntimeInfo(master=True, ha_connection_info=[well])
    assert group_ready(report_of(replication)).ok
    replication.info = HARuntimeInfo(master=True, ha_connection_info=[well, ill])
    report = report_of(replication)
    assert (ready(report).ok, group_ready(report).ok) == (True, False)
    assert group_ready(report).why == ["c is not in sync: is away"]


async def test_a_follower_knows_of_its_group_that_there_is_a_master() -> None:
    assert group_ready(report_of(follower())).ok
    assert not group_ready(report_of(follower(follows=False))).ok
