from ha.results import ReplicaStanding
from node.figures.replication_figures import replication_figures
from tandem.wire.request_headers import HAConnectionRuntimeInfo, HARuntimeInfo
from tests.node.doubles import NOW_MS, Broker, FakeReplication
from tests.node.figures.seen import by_name, values
from tests.node.handlers.inspected import put


def broker_with(standing: ReplicaStanding, *, is_fenced: bool = False) -> Broker:
    broker = Broker(is_fenced=is_fenced)
    replication = FakeReplication()
    replication.standing, broker.replication = standing, replication
    replication.info = HARuntimeInfo(
        master=True,
        ha_connection_info=[
            HAConnectionRuntimeInfo(addr="1", slave_ack_offset=90, diff=10, in_sync=True, name="b"),
            HAConnectionRuntimeInfo(
                addr="2", slave_ack_offset=-1, diff=100, in_sync=False, name="c"
            ),
        ],
    )
    return broker


async def test_a_master_says_how_far_the_others_are() -> None:
    standing = ReplicaStanding(role="MASTER", in_sync=2, needed=2, lease_left_seconds=4.5)
    broker = broker_with(standing, is_fenced=True)
    put(broker, 2)
    broker.now_ms = NOW_MS + 1_500
    found = list(replication_figures(broker.sources()))
    named, shown = by_name(found), values(found)
    assert named["tandem_role"] == [({"role": "master"}, 1)]
    assert named["tandem_replica_in_sync"] == [({"replica": "b"}, 1), ({"replica": "c"}, 0)]
    # What a node has that does not answer nobody knows: it is not all of the log.
    assert named["tandem_replica_lag_bytes"] == [({"replica": "b"}, 10)]
    assert (shown["tandem_in_sync_replicas"], shown["tandem_lease_left_seconds"]) == (2, 4.5)
    assert shown["tandem_confirm_lag_bytes"] == broker.store.max_physical_offset
    assert shown["tandem_confirm_lag_seconds"] == 1.5


async def test_what_only_a_master_knows_others_do_not_say() -> None:
    broker = broker_with(ReplicaStanding(role="FOLLOWER", needed=2, follows=True))
    replication = broker.replication
    assert isinstance(replication, FakeReplication)
    replication.info = HARuntimeInfo(master=False)
    replication.demote("another is master")
    shown = values(replication_figures(broker.sources()))
    assert shown == {"tandem_takes_messages": 0, "tandem_in_sync_replicas_needed": 2}


async def test_when_and_why_the_master_changed_last_is_said() -> None:
    standing = ReplicaStanding(role="FOLLOWER", switched_at_ms=1500, switch_cause="promoted")
    named = by_name(list(replication_figures(broker_with(standing).sources())))
    assert named["tandem_last_switch_timestamp_seconds"] == [({"cause": "promoted"}, 1.5)]


async def test_nothing_is_late_where_all_is_confirmed() -> None:
    shown = values(replication_figures(broker_with(ReplicaStanding(role="MASTER")).sources()))
    assert (shown["tandem_confirm_lag_bytes"], shown["tandem_confirm_lag_seconds"]) == (0, 0)
