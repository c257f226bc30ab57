import msgspec

from node.figures.group_lag import GroupLags
from tests.node.doubles import NOW_MS, Broker
from tests.node.figures.seen import by_name
from tests.node.handlers.inspected import put

LAG = "rocketmq_consumer_lag_messages"
LATENCY = "rocketmq_consumer_lag_latency_milliseconds"
PAST_END = "tandem_consumer_past_end_messages"
IN_FLIGHT = "rocketmq_consumer_inflight_messages"
READY = "rocketmq_consumer_ready_messages"


def lags_of(broker: Broker, lags: GroupLags | None = None) -> dict[str, dict[str, float]]:
    """By family and group."""
    found = by_name((lags or GroupLags()).figures(broker.sources()))
    return {
        name: {labels["consumer_group"]: value for labels, value in entries}
        for name, entries in found.items()
    }


async def test_a_group_without_a_consumer_has_its_lag() -> None:
    broker = Broker()
    put(broker, 6)
    put(broker, 3, queue_id=1)
    broker.tables.commit("g", "T", 0, 4)
    broker.now_ms = NOW_MS + 700
    found = lags_of(broker)
    assert broker.clients.groups() == []
    assert (found[LAG], found[LATENCY], found[PAST_END]) == ({"g": 2}, {"g": 700}, {"g": 0})
    # Queue 1 has messages, but nobody knows where the group would begin there.


async def test_the_oldest_message_is_the_one_that_the_group_waits_at() -> None:
    broker = Broker()
    put(broker, 1)
    broker.now_ms = NOW_MS + 500
    put(broker, 1)
    broker.tables.commit("g", "T", 0, 1)
    broker.now_ms = NOW_MS + 700
    assert lags_of(broker)[LATENCY] == {"g": 200}


async def test_what_was_given_out_by_nobody_knows_whom_is_not_said() -> None:
    broker = Broker()
    put(broker, 6)
    broker.tables.commit("g", "T", 0, 2)
    assert {IN_FLIGHT, READY}.isdisjoint(lags_of(broker))
    broker.stats.handed_out("g", "T", 0, 5, 3, 300)
    found = lags_of(broker)
    assert (found[IN_FLIGHT], found[READY]) == ({"g": 3}, {"g": 1})


async def test_a_group_past_the_end_is_below_nothing() -> None:
    broker = Broker()
    put(broker, 2)
    put(broker, 5, queue_id=1)
    broker.tables.commit("past", "T", 0, 9)
    broker.tables.commit("both", "T", 0, 9)
    broker.tables.commit("both", "T", 1, 1)
    broker.tables.commit("done", "T", 0, 2)
    found = lags_of(broker)
    assert found[LAG] == {"past": -7, "both": 4, "done": 0}
    assert found[PAST_END] == {"past": 7, "both": 7, "done": 0}
    assert found[LATENCY] == {"past": 0, "both": 0, "done": 0}


async def test_of_a_topic_that_is_no_more_nothing_is_known() -> None:
    broker = Broker()
    broker.tables.commit("g", "gone", 0, 9)
    assert lags_of(broker) == {}


async def test_a_node_that_is_not_the_master_knows_no_lag() -> None:
    broker = Broker()
    put(broker, 2)
    broker.tables.commit("g", "T", 0, 1)
    assert LAG in lags_of(broker)
    broker.replication.demote("another is master")  # type: ignore[attr-defined]
    assert lags_of(broker) == {}


async def test_a_record_that_a_group_waits_at_is_read_once() -> None:
    broker, lags = Broker(), GroupLags()
    put(broker, 3)
    broker.tables.commit("g", "T", 0, 1)
    assert lags_of(broker, lags)[LATENCY] == {"g": 0}
    broker.now_ms = NOW_MS + 10
    broker.store.reads.message_store_timestamp_ms = None  # type: ignore[method-assign,assignment]
    assert lags_of(broker, lags)[LATENCY] == {"g": 10}


async def test_a_damaged_record_hides_how_long_and_not_how_many() -> None:
    broker = Broker()
    put(broker, 3)
    broker.tables.commit("g", "T", 0, 1)
    broker.store.commit_log.damage.note(0, broker.store.max_physical_offset, "flipped")
    found = lags_of(broker)
    assert found[LAG] == {"g": 2}
    assert LATENCY not in found


async def test_the_exporters_names() -> None:
    broker = Broker()
    put(broker, 3)
    broker.tables.commit("g", "T", 0, 1)
    sources = msgspec.structs.replace(broker.sources(), with_exporter_names=True)
    found = by_name(GroupLags().figures(sources))
    of_group = {"topic": "T", "group": "g"}
    online = {**of_group, "countOfOnlineConsumers": "0", "msgModel": "0"}
    assert found["rocketmq_group_diff"] == [(online, 2)]
    assert found["rocketmq_consumer_offset"] == [(of_group, 1)]
    assert found["rocketmq_group_get_latency_by_storetime"] == [(of_group, 0)]
