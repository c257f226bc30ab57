import msgspec
import pytest

from tandem.client.life_nodes import LifeNodes
from tandem.client.life_waits import LifeWaits
from tandem.life.evidence import Evidence
from tandem.life.records import records_of
from tandem.wire.message import MessageExt
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import OffsetResponseHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import RMQ_SYS_TRANS_HALF_TOPIC, SCHEDULE_TOPIC, TRACE_TOPIC
from tests.tandem.client.fake_broker import MASTER, answer_to, message_ext
from tests.tandem.client.life_world import KEY, LifeWorld, stored
from tests.tandem.life.samples import copy

HALF = stored(RMQ_SYS_TRANS_HALF_TOPIC, 4, properties={"REAL_TOPIC": "T"})
DELAYED = stored(SCHEDULE_TOPIC, queue_id=2, properties={"REAL_TOPIC": "T", "DELAY": "3"})


def gathered(world: LifeWorld, *messages: MessageExt) -> Evidence:
    evidence = world.evidence()
    nodes = world.run(LifeNodes(world.calls).gather(evidence))
    found = records_of(copy(each, broker="broker-a") for each in messages)
    world.run(LifeWaits(nodes, evidence).gather(found))
    return evidence


def with_ops(*bodies: bytes) -> LifeWorld:
    """A world whose broker-a has these records about halves that have ended."""
    world = LifeWorld()
    world.answer(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        lambda request, name: answer_to(request, ext=OffsetResponseHeader(0)),
    )
    queue = world.brokers[MASTER].queues.setdefault(("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0), [])
    for place, body in enumerate(bodies):
        message = message_ext(body, topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", queue_offset=place)
        queue.append(msgspec.structs.replace(message, properties={"TAGS": "d"}))
    pull = world.brokers[MASTER].handlers[RequestCode.PULL_MESSAGE]
    world.answer(
        RequestCode.PULL_MESSAGE, lambda request, name: pull(request) or answer_to(request)
    )
    return world


@pytest.mark.parametrize("bodies", [(b"1,4,", b"9,"), (b"1,",) * 40 + (b"4,",)])
def test_the_records_about_ended_halves_are_read_to_the_end(bodies: tuple[bytes, ...]) -> None:
    evidence = gathered(with_ops(*bodies), HALF)
    assert 4 in {end.half_queue_offset for end in evidence.ends}
    assert [read.is_complete for read in evidence.halves_read] == [True]


def test_what_may_not_be_read_is_not_taken_for_all() -> None:
    world = with_ops()
    world.refuse(RequestCode.PULL_MESSAGE, ResponseCode.NO_PERMISSION)
    evidence = gathered(world, HALF)
    assert [read.is_complete for read in evidence.halves_read] == [False]
    assert evidence.gaps


def test_the_levels_of_a_broker_are_its_setting() -> None:
    world = LifeWorld()
    world.settings(messageDelayLevel="1s 2s 1h")
    world.answer(
        RequestCode.GET_ALL_DELAY_OFFSET,
        lambda request, name: answer_to(request, body=b'{"offsetTable":{3:12}}'),
    )
    (delays,) = gathered(world, DELAYED).delays
    assert delays.delays_ms == (1_000, 2_000, 3_600_000)
    assert (delays.next_offsets, delays.is_default) == ({3: 12}, False)


@pytest.mark.parametrize("levels", ["", "nonsense"])
def test_without_levels_that_can_be_read_nothing_is_made_up(levels: str) -> None:
    world = LifeWorld()
    world.settings(messageDelayLevel=levels)
    world.answer(
        RequestCode.GET_ALL_DELAY_OFFSET, lambda request, name: answer_to(request, body=b"{}")
    )
    evidence = gathered(world, DELAYED)
    assert [each.is_default for each in evidence.delays] == ([True] if not levels else [])
    assert bool(evidence.gaps) == bool(levels)


def test_what_clients_traced_is_read() -> None:
    fields = ["Pub", "17", "R", "pg", "T", KEY, "", "", "h", "1", "7", "0", "X", "true"]
    trace = stored(TRACE_TOPIC, body="\x01".join(fields).encode() + b"\x02")
    world = LifeWorld(trace)
    evidence = world.evidence()
    nodes = world.run(LifeNodes(world.calls).gather(evidence))
    world.run(LifeWaits(nodes, evidence).traces(KEY))
    assert [(mark.what, mark.at_ms, mark.success) for mark in evidence.traces] == [
        ("sent", 17, True)
    ]
