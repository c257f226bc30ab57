import json

import pytest

from node.handlers.broker_runtime_info import in_words, readable_bytes, tps_text
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import NOW_MS, Broker, Client, handlers_of, request_table
from tests.node.handlers.inspected import looking_at, put, tick

INFO = RequestCode.GET_BROKER_RUNTIME_INFO

READ_BY_CLUSTER_LIST = (
    "brokerActive",
    "brokerVersionDesc",
    "putTps",
    "getTransferredTps",
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "commitLogDiskRatio",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
)


READ_BY_THE_EXPORTER = (
    "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "queryThreadPoolQueueCapacity",
    "bootTimestamp",
    "brokerVersion",
    "commitLogMaxOffset",
    "commitLogMinOffset",
    "consumeQueueDiskRatio",
    "dispatchBehindBytes",
    "dispatchMaxBuffer",
    "getMessageEntireTimeMax",
    "putMessageAverageSize",
    "putMessageEntireTimeMax",
    "putMessageSizeTotal",
    "putMessageTimesTotal",
    "remainTransientStoreBufferNumbs",
    "startAcceptSendRequestTimeStamp",
)
"""Numbers; if one is missing, it takes none. Source: rocketmq-exporter, BrokerRuntimeStats."""


def info_of(broker: Broker) -> dict[str, str]:
    table: dict[str, str] = json.loads(looking_at(broker).call(INFO).body)["table"]
    return table


async def test_a_broker_with_messages() -> None:
    broker = Broker()
    put(broker, 4)
    info = info_of(broker)
    size = broker.store.max_physical_offset
    assert set(READ_BY_CLUSTER_LIST) <= info.keys()
    assert all(float(info[key]) >= 0 for key in READ_BY_THE_EXPORTER)
    assert list(info) == sorted(info)
    expected = {
        "brokerActive": "true",
        "brokerVersion": "479",
        "brokerVersionDesc": "V5_3_3",
        "bootTimestamp": str(NOW_MS),
        "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
        "msgPutTotalTodayNow": "4",
        "putMessageTimesTotal": "4",
        "putMessageSizeTotal": str(size),
        "putMessageAverageSize": str(size / 4),
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": str(size),
        "earliestMessageTimeStamp": str(NOW_MS),
        "scheduleMessageOffset_3": "5,0",
        "dispatchBehindBytes": "0",
    }
    assert {key: info[key] for key in expected} == expected
    assert 0 <= float(info["commitLogDiskRatio"]) <= 1


async def test_a_damaged_log_is_shown() -> None:
    broker = Broker()
    assert (info_of(broker)["commitLogDamage"], info_of(broker)["commitLogScrub"]) == ("", "")
    broker.store.commit_log.damage.note(10, 20, "flipped")
    assert info_of(broker)["commitLogDamage"] == "its log is damaged from 10 to 20 (flipped)"


async def test_an_empty_broker() -> None:
    info = info_of(Broker())
    assert (info["earliestMessageTimeStamp"], info["putMessageTimesTotal"]) == ("-1", "1")
    assert info["putTps"] == "  "


async def test_a_slave_says_nothing_of_puts() -> None:
    broker = Broker(is_slave=True)
    broker.stats.came("T", 9, 900)
    tick(broker)
    info = info_of(broker)
    assert (info["brokerActive"], info["putTps"], info["msgPutTotalTodayNow"]) == (
        "false",
        "0.0 0.0 0.0",
        "0",
    )


async def test_no_path_is_in_it() -> None:
    assert not any("/" in key or "/" in value for key, value in info_of(Broker()).items())


async def test_the_log_ends_for_others_where_it_is_confirmed() -> None:
    broker = Broker(is_fenced=True)
    put(broker)
    info = info_of(broker)
    assert (info["commitLogMaxOffset"], info["earliestMessageTimeStamp"]) == ("0", "-1")


def test_rates_that_are_not_known_are_empty() -> None:
    shown = {"put_tps10": 2.0, "put_tps60": 2.5}
    assert tps_text(shown, "put") == "2.0 2.5 "
    assert tps_text(shown, "getfound") == "  "


@pytest.mark.parametrize(
    ("span_ms", "words"),
    [
        (64_000, "[ 0 days, 0 hours, 1 minutes, 4 seconds ]"),
        (90_061_999, "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"),
        (-5, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"),
    ],
)
def test_how_long_it_has_been_running(span_ms: int, words: str) -> None:
    assert in_words(span_ms) == words


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (2048, "2.0 KiB"),
        (252 << 30, "252.0 GiB"),
        (3 << 60, "3.0 EiB"),
    ],
)
def test_sizes_for_people(size: int, words: str) -> None:
    assert readable_bytes(size) == words


async def test_what_is_asked_for_and_not_served_is_told() -> None:
    broker = Broker()
    handlers = handlers_of(broker)
    client = Client(request_table(handlers), broker.outbox, unsupported=broker.unsupported)
    for _ in range(2):
        assert client.call(902, {}).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    table = json.loads(client.call(INFO).body)["table"]
    assert table["notServed_902"] == "2"


async def test_how_long_puts_took() -> None:
    broker = Broker()
    for _ in range(10):
        put(broker)
    tick(broker)
    broker.put_times.waited(2, 0.020)
    broker.put_times.failed_count = 3
    info = info_of(broker)
    assert info["putMessageDistributeTime"].startswith("[<=0ms]:8 [0~10ms]:0 [10~50ms]:2 ")
    assert info["putMessageEntireTimeMax"] == "20"
    broker.stats.longest_get_seconds = 0.030
    assert info_of(broker)["getMessageEntireTimeMax"] == "30"
    assert (info["putLatency99"], info["putMessageFailedTimes"]) == ("20.00", "3")
