from node.figures.broker_figures import broker_figures, used_ratio
from node.figures.families import FAMILIES
from store.machine.disk import DiskSpace
from tests.node.doubles import NOW_MS, Broker
from tests.node.figures.seen import by_name, values
from tests.node.handlers.inspected import put


async def test_a_broker_with_messages() -> None:
    broker = Broker()
    put(broker, 4)
    broker.now_ms = NOW_MS + 5_000
    found = list(broker_figures(broker.sources()))
    assert {each.name for each in found} <= FAMILIES.keys()
    shown, size = values(found), broker.store.max_physical_offset
    expected = {
        "rocketmq_brokeruntime_putmessage_times_total": 4,
        "rocketmq_brokeruntime_pmdt_0ms": 4,
        "rocketmq_brokeruntime_put_message_average_size": size / 4,
        "rocketmq_broker_permission": 6,
        "tandem_log_end_bytes": size,
        "tandem_log_confirmed_bytes": size,
        "tandem_queues": 1,
    }
    assert {name: shown[name] for name in expected} == expected
    storage = {"storage_type": "local", "storage_medium": "disk"}
    named = by_name(found)
    assert named["rocketmq_storage_size_bytes"] == [(storage, size)]
    assert named["rocketmq_storage_message_reserve_time_milliseconds"] == [(storage, 5_000)]


async def test_what_is_not_known_has_no_figure() -> None:
    """Rates before a minute has passed, the age of a log without messages, an average of none."""
    shown = values(broker_figures(Broker().sources()))
    for name in (
        "rocketmq_brokeruntime_put_tps60",
        "rocketmq_brokeruntime_earliest_message_timestamp",
        "rocketmq_brokeruntime_put_message_average_size",
    ):
        assert name in FAMILIES
        assert name not in shown


async def test_a_node_that_is_not_the_master_has_no_puts() -> None:
    broker = Broker(is_slave=True)
    broker.stats.came("T", 9, 900)
    broker.replication.demote("another is master")  # type: ignore[attr-defined]
    shown = values(broker_figures(broker.sources()))
    assert "rocketmq_brokeruntime_putmessage_times_total" not in shown
    assert shown["rocketmq_broker_permission"] == 4


def test_how_full_a_disk_is() -> None:
    assert used_ratio(DiskSpace(3, 1)) == 0.75
    assert used_ratio(DiskSpace(0, 0)) == -1
