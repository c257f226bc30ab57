from store.delayed.timer_metrics import TimerMetrics
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker
from tests.node.handlers.inspected import looking_at


async def test_how_far_each_delay_level_is() -> None:
    answer = looking_at(Broker()).call(RequestCode.GET_ALL_DELAY_OFFSET)
    assert answer.body == (
        b'{"dataVersion":{"stateVersion":0,"timestamp":0,"counter":0},"offsetTable":{"3":5}}'
    )


async def test_how_far_timers_are_and_that_there_are_none() -> None:
    broker = Broker()
    client = looking_at(broker)
    answer = client.call(RequestCode.GET_TIMER_CHECK_POINT)
    assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
    broker.delayed.checkpoint = bytes(range(56))
    assert client.call(RequestCode.GET_TIMER_CHECK_POINT).body == bytes(range(56))


async def test_how_many_timers_wait_for_each_topic_and_that_there_are_none() -> None:
    broker = Broker()
    client = looking_at(broker)
    answer = client.call(RequestCode.GET_TIMER_METRICS)
    assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
    metrics = TimerMetrics(lambda: 7)
    broker.delayed.metrics = metrics.shown
    empty = b'{"dataVersion":{"stateVersion":0,"timestamp":7,"counter":0},"timingCount":{}}'
    assert client.call(RequestCode.GET_TIMER_METRICS).body == empty
    metrics.enter("T", "T", cancels=False)
    broker.delayed.metrics = metrics.shown
    assert client.call(RequestCode.GET_TIMER_METRICS).body == (
        b'{"dataVersion":{"stateVersion":0,"timestamp":7,"counter":1},'
        b'"timingCount":{"T":{"count":1,"timeStamp":7}}}'
    )
