import pytest
import trio
from trio.testing import MockClock

from node.tables import put_counting
from node.tables.broker_stats import TOPIC_PUT_NUMS
from node.tables.put_counting import REFRESH_SECONDS, PutCounting
from store import PutMessage
from tests.node.doubles import NOW_MS, Broker


def put(broker: Broker, count: int = 1) -> None:
    for _ in range(count):
        message = PutMessage("T", 0, b"x", b"", NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
        assert broker.store.puts.put_message(message).status == 0


def counting(broker: Broker) -> PutCounting:
    return PutCounting(broker.store, broker.stats, lambda: NOW_MS + int(trio.current_time() * 1000))


async def test_who_asks_is_told_what_has_come_once_a_second(autojump_clock: MockClock) -> None:
    broker = Broker()
    puts = counting(broker)
    put(broker, 2)
    puts.refresh()
    put(broker)
    puts.refresh()
    assert broker.stats.put_messages == 2
    await trio.sleep(REFRESH_SECONDS)
    puts.refresh()
    assert broker.stats.put_messages == 3


async def test_with_many_queues_nobody_waits_for_whoever_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(put_counting, "REFRESHED_QUEUES_MAX", 0)
    broker = Broker()
    puts = counting(broker)
    put(broker)
    puts.refresh()
    assert broker.stats.put_messages == 0


async def test_every_ten_seconds_there_is_a_snapshot(
    autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_counting, "STEPS_IN_A_TURN", 1)
    broker = Broker()
    nursery.start_soon(counting(broker).run)
    await trio.sleep(1)
    put(broker, 5)
    await trio.sleep(10)
    minute = broker.stats.minute_of(TOPIC_PUT_NUMS, "T")
    assert (minute.sum, minute.avgpt, minute.tps) == (5, 1.0, 0.5)
    assert broker.stats.put_tps.tps() == [0.5, None, None]
    await trio.sleep(70)
    assert broker.stats.minute_of(TOPIC_PUT_NUMS, "T").sum == 0
