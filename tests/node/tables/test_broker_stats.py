import pytest

from node.tables import broker_stats
from node.tables.broker_stats import (
    BROKER_GET_NUMS,
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC,
    BROKER_PUT_NUMS,
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    BrokerStats,
    Totals,
    local_day,
)

DAY_MS = 86_400_000
START_MS = 100 * DAY_MS


def stats() -> BrokerStats:
    return BrokerStats("C", lambda now_ms: now_ms // DAY_MS, START_MS)


def tick(them: BrokerStats, now_ms: int) -> None:
    for _ in them.snapshots(now_ms):
        pass


def value(them: BrokerStats, name: str, key: str) -> int | None:
    item = them.find(name, key)
    return None if item is None else item.value


def test_puts_are_counted_by_topic_and_in_all() -> None:
    them = stats()
    them.came("T", 3, 300)
    them.came("SCHEDULE_TOPIC_XXXX", 2, 50)
    assert value(them, TOPIC_PUT_NUMS, "T") == 3
    assert value(them, TOPIC_PUT_SIZE, "T") == 300
    assert value(them, BROKER_PUT_NUMS, "C") == 5
    assert value(them, BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, "C") == 3
    assert them.put_messages == 5
    assert them.put_bytes == 350


def test_records_of_the_journal_are_no_messages() -> None:
    them = stats()
    them.came("rmq_sys_TANDEM_JOURNAL", 3, 300)
    assert value(them, TOPIC_PUT_NUMS, "rmq_sys_TANDEM_JOURNAL") == 3
    assert (them.put_messages, them.put_bytes, them.put_totals.now) == (0, 0, 0)


def test_gets_are_counted_once_a_pull() -> None:
    them = stats()
    them.handed_out("g", "T", 1, 10, 4, 400)
    them.handed_out("g", "T", 1, 11, 1, 50)
    them.handed_out("g", "rmq_sys_x", 0, 1, 1, 10)
    tick(them, START_MS)
    got = them.minute_of(GROUP_GET_NUMS, "T@g")
    assert (got.sum, got.avgpt, got.tps) == (5, 2.5, 0.5)
    assert value(them, GROUP_GET_SIZE, "T@g") == 450
    assert value(them, BROKER_GET_NUMS, "C") == 6
    assert value(them, BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, "C") == 5
    assert them.found == 3
    assert them.pull_offset("g", "T", 1) == 11
    assert them.pull_offset("g", "T", 0) == them.pull_offset("other", "T", 1) == 0


def test_what_came_back_is_counted_by_topic_and_group() -> None:
    them = stats()
    them.sent_back("g", "T")
    assert value(them, SNDBCK_PUT_NUMS, "T@g") == 1


@pytest.mark.parametrize(
    ("name", "key"),
    [("NOPE", "x"), (TOPIC_PUT_NUMS, "other"), (GROUP_GET_NUMS, "T@g"), (BROKER_PUT_NUMS, "c2")],
)
def test_what_nobody_counted_is_not_there_and_reads_as_nothing(name: str, key: str) -> None:
    assert stats().find(name, key) is None
    assert stats().minute_of(name, key).sum == 0


def test_totals_at_the_last_two_midnights() -> None:
    them = stats()
    them.came("T", 10, 1)
    them.handed_out("g", "T", 0, 1, 4, 1)
    assert them.put_totals == Totals(0, 0, 10)
    tick(them, START_MS + DAY_MS)
    them.came("T", 5, 1)
    assert them.put_totals == Totals(0, 10, 15)
    assert them.get_totals == Totals(0, 4, 4)
    tick(them, START_MS + 2 * DAY_MS)
    tick(them, START_MS + 2 * DAY_MS + 10_000)
    assert them.put_totals == Totals(10, 15, 15)


def test_items_are_few_enough_whatever_clients_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_stats, "ITEMS_MAX", 3)
    them = stats()
    for number in range(10):
        them.came(f"T{number}", 1, 1)
        them.handed_out(f"g{number}", "T", 0, 1, 1, 1)
        them.sent_back(f"g{number}", "T")
    assert value(them, TOPIC_PUT_NUMS, "T2") == value(them, GROUP_GET_NUMS, "T@g2") == 1
    assert value(them, TOPIC_PUT_NUMS, "T3") is value(them, GROUP_GET_NUMS, "T@g3") is None
    assert value(them, SNDBCK_PUT_NUMS, "T@g3") is None
    assert them.put_messages == them.got_messages == 10


def test_a_group_with_a_name_that_nobody_may_have_is_not_kept() -> None:
    them = stats()
    them.handed_out("g" * 300, "T", 0, 1, 1, 1)
    assert them.find(GROUP_GET_NUMS, "T@" + "g" * 300) is None


def test_the_idle_go_when_no_window_shows_them_any_more_or_room_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    them = stats()
    for _ in range(2):
        them.came("T", 1, 1)
        them.handed_out("g", "T", 0, 1, 1, 1)
    for step in range(60 * 2 + 1):
        tick(them, START_MS + step * 10_000)
    assert them.find(TOPIC_PUT_NUMS, "T") is not None
    monkeypatch.setattr(broker_stats, "ITEMS_MAX", 1)
    for step in range(60 * 2 + 1, 60 * 4):
        tick(them, START_MS + step * 10_000)
    assert them.find(TOPIC_PUT_NUMS, "T") is None
    assert them.find(GROUP_GET_NUMS, "T@g") is None


def test_the_next_day_has_the_next_number() -> None:
    assert local_day(START_MS + DAY_MS) == local_day(START_MS) + 1
