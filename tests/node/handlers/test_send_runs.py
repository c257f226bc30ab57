"""Requests that come together end as if they had come one by one, whatever they are."""

from collections.abc import Callable
from functools import partial
from typing import Final

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ha.results import Refusal
from node.handlers import parked_puts
from node.handlers.send_runs import ONE_BY_ONE_MAX
from node.remoting import server
from store import PutMessageStatus
from tandem.wire import native
from tandem.wire.message import Host
from tandem.wire.remoting_command import ONEWAY_FLAG, SerializeType
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import CLIENT, NOW_MS
from tests.node.handlers.send_node import (
    CODES,
    ENCODINGS,
    PACKED,
    REQUESTS,
    UNUSUAL,
    USUAL,
    Node,
    frame,
)
from tests.node.handlers.send_requests import MORE, Waiters, as_in_cpp, received, with_more

pytestmark = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")


async def alike(*chunks: bytes, peer: Host = CLIENT) -> Node:
    """Have both nodes receive these; return the one that takes runs."""
    ours, other = Node(peer=peer), Node(peer=peer, has_loops=False)
    for node in (ours, other):
        # The queues have to be there: a first message is never usual.
        for topic in ("T", "U"):
            for queue_id in range(4):
                node.put(topic, queue_id)
    ours.told, other.told = await ours.receive(*chunks), await other.receive(*chunks)
    assert ours.told == other.told
    assert ours.state() == other.state()
    return ours


@pytest.mark.parametrize("peer", [CLIENT, Host("2001:db8::1", 5)])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_what_came_together_is_one_run(
    encoding: SerializeType, code: int, peer: Host
) -> None:
    frames = [
        frame(
            number,
            b"%d" % number,
            code=code,
            encoding=encoding,
            queue_id=number % 3,
            # Clients of 4.9 leave out the last separator.
            properties=USUAL[: -(number % 2) or None],
        )
        for number in range(40)
    ]
    node = await alike(b"".join(frames), peer=peer)
    assert node.alone == []
    assert [answer.opaque for answer in node.answers()] == list(range(40))
    assert node.arrivals == {("T", 0): 15, ("T", 1): 14, ("T", 2): 14}


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_numbers_may_be_without_quotes(encoding: SerializeType) -> None:
    """So the client in C++ writes them."""
    frames = [as_in_cpp(frame(number, code=code)) for number, code in enumerate(2 * CODES)]
    assert b'"queueId":1,' in frames[0]
    assert b'"e":1,' in frames[1]
    node = await alike(b"".join([*frames, frame(5, encoding=encoding)]))
    assert node.alone == []


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_run_ends_where_its_bytes_do(encoding: SerializeType) -> None:
    data = b"".join(frame(number, b"x" * 100, encoding=encoding) for number in range(9))
    for size in (7, 8, 9, 300, 777, len(data) - 1):
        chunks = [data[start : start + size] for start in range(0, len(data), size)]
        node = await alike(*chunks)
        assert [answer.opaque for answer in node.answers()] == list(range(9))


NOWHERE: Final = ("no such queue", "a new topic", "a topic of the system")


@pytest.mark.slow
@pytest.mark.parametrize("what", UNUSUAL)
async def test_what_is_not_usual_is_handled_alone(what: str) -> None:
    """And what stands around it is not."""
    around = frame(1), frame(2), UNUSUAL[what], *map(frame, range(3, 9))
    node = await alike(b"".join(around))
    assert what == "another request" or 0 in node.alone
    # What was found together with one that goes nowhere is not looked at a third time.
    assert len(node.alone) == 7 if what in NOWHERE else len(node.alone) <= 2


BROKEN: Final[dict[str, bytes]] = {
    "an escape that is none": frame().replace(b'"a":"PG"', b'"a":"\\q"'),
    "something behind the header": frame().replace(b'"version":479}', b'"version":47}}'),
    "text that leads out of the header": frame(broker_name="broker-a", encoding=PACKED).replace(
        b"\xa8broker-a", b"\xa9broker-a"
    ),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_what_no_correct_peer_sends_ends_the_connection(what: str) -> None:
    node = await alike(frame(1) + frame(2) + BROKEN[what] + frame(3))
    assert node.told
    assert [answer.opaque for answer in node.answers()] == [1, 2]


@pytest.mark.slow
@settings(max_examples=4 * settings().max_examples)
@given(received(REQUESTS | st.just(frame(5)) | REQUESTS.map(as_in_cpp)))
def test_any_requests_end_as_if_they_had_come_one_by_one(chunks: list[bytes]) -> None:
    trio.run(partial(alike, *chunks))


@pytest.mark.slow
@settings(max_examples=2 * settings().max_examples)
@given(st.lists(st.tuples(st.sampled_from(ENCODINGS), st.sampled_from(CODES), MORE), max_size=12))
def test_a_request_that_says_who_sends_it_is_in_no_run(
    sends: list[tuple[SerializeType, int, dict[str, str]]],
) -> None:
    """So what the guard says of it is the same with and without runs: it is asked."""
    frames = [
        with_more(frame(number, encoding=encoding, code=code), more)
        for number, (encoding, code, more) in enumerate(sends)
    ]
    node = trio.run(partial(alike, b"".join(frames)))
    assert {number for number, (_, _, more) in enumerate(sends) if more} <= set(node.alone)


async def test_looks_for_runs_get_rarer_while_there_are_none() -> None:
    looks = 0
    node = Node()
    assert node.runs.take is not None
    (found,) = node.runs.take.args  # how often it is asked is seen nowhere else
    look = found.find

    def counted(data: bytes, start: int) -> bool:
        nonlocal looks
        looks += 1
        return bool(look(data, start))

    found.find = counted
    await node.receive(frame(flag=ONEWAY_FLAG) * 500)
    assert node.connection.misses == ONE_BY_ONE_MAX
    assert looks < 20
    assert len(node.alone) == 500


def refused(node: Node) -> None:
    node.replication.refused = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "another is master")


def closed(node: Node) -> None:
    node.broker.store.fence("lease is over")


@pytest.mark.parametrize("refuse", [refused, closed])
async def test_nothing_is_stored_by_a_node_that_takes_no_puts(
    refuse: Callable[[Node], None],
) -> None:
    nodes = Node(), Node(has_loops=False)
    for node in nodes:
        node.put("T", 1)
        before = node.log()
        refuse(node)
        await node.receive(frame(1) + frame(2))
        assert node.log() == before
        assert {answer.code for answer in node.answers()} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    assert nodes[0].state() == nodes[1].state()


async def test_what_is_too_many_to_wait_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_puts, "PARKED_PUTS_MAX", 5)
    waiters = Waiters()
    one = Node(waiters=waiters)
    one.put("T", 1)
    await one.receive(frame(1) * 4, frame(2) * 3)
    assert [answer.code for answer in one.answers()] == [ResponseCode.SYSTEM_BUSY] * 2


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_run_is_answered_when_its_last_message_is_where_it_is_to_be(
    encoding: SerializeType,
) -> None:
    waiters, one = with_waiters()
    await one.receive(b"".join(frame(number, encoding=encoding) for number in range(5)))
    assert one.answers() == []
    ((end, _, _),) = waiters.waiting
    assert end == one.broker.store.max_physical_offset
    waiters.answer(PutMessageStatus.PUT_OK)
    one.broker.outbox.flush()
    assert [(answer.opaque, answer.code) for answer in one.answers()] == [
        (number, 0) for number in range(5)
    ]
    assert one.connection.owed_count == 0
    assert one.alone == []


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_of_a_run_in_time_is_what_the_slave_has_reached(encoding: SerializeType) -> None:
    waiters, one = with_waiters()
    before = one.broker.store.max_physical_offset
    await one.receive(b"".join(frame(number, encoding=encoding) for number in range(5)))
    record_bytes = (one.broker.store.max_physical_offset - before) // 5
    waiters.reached = before + 2 * record_bytes
    waiters.answer(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, "slow")
    one.broker.outbox.flush()
    late = ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert [(answer.opaque, answer.code, answer.remark) for answer in one.answers()] == [
        *((0, 0, None), (1, 0, None)),
        *((number, late, "slow") for number in (2, 3, 4)),
    ]


async def test_who_waits_and_who_does_not_are_two_runs() -> None:
    waiters, one = with_waiters()
    eager = USUAL + "WAIT\x01false\x02"
    await one.receive(frame(1) + frame(2, properties=eager) + frame(3))
    assert [answer.opaque for answer in one.answers()] == [2]
    waiters.answer(PutMessageStatus.PUT_OK)
    one.broker.outbox.flush()
    assert [answer.opaque for answer in one.answers()] == [1, 3]


def with_waiters() -> tuple[Waiters, Node]:
    """Return a node with a slave whose connection is not closed in order, and what waits there."""
    waiters = Waiters()
    one = Node(waiters=waiters)
    one.put("T", 1)
    return waiters, one


async def test_a_run_goes_on_in_the_next_file_of_log_and_queue() -> None:
    """The log's file takes 1 MiB, that of a queue 300 units."""
    body = bytes(range(256)) * 8
    node = await alike(*[frame(n, body, queue_id=n % 2) * 10 for n in range(150)])
    files = node.broker.store.commit_log.files.files
    assert len(files) == 4
    assert len(node.alone) < 75


async def test_a_put_that_took_too_long_stops_the_runs_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However busy the machine is, both are of one round: the next one is asked anew.
    monkeypatch.setattr(server, "TURN_SECONDS", 60.0)
    nodes = Node(), Node(has_loops=False)
    for node_ in nodes:
        node_.put("T", 1)
        puts = node_.broker.store.puts
        puts._busy_after_ms = NOW_MS - 1
        await node_.receive(frame(1) + frame(2))
    assert nodes[0].state() == nodes[1].state()
    assert {answer.code for answer in nodes[0].answers()} == {ResponseCode.SYSTEM_BUSY}


async def test_a_full_disk_refuses_one_by_one() -> None:
    nodes = Node(), Node(has_loops=False)
    for node_ in nodes:
        node_.put("T", 1)
        node_.broker.simulated_disk.capacity_bytes = node_.broker.simulated_disk.used_bytes
        await node_.receive(b"".join(frame(n, bytes(3000)) for n in range(800)))
    assert nodes[0].state() == nodes[1].state()
    assert nodes[0].broker.put_times.failed_count > 0


async def test_readers_of_a_fenced_group_see_a_run_when_it_is_confirmed() -> None:
    one = Node(is_fenced=True)
    one.put("T", 1)
    one.put("T", 2)
    store = one.broker.store
    store.confirm(store.max_physical_offset)
    one.arrivals.clear()
    await one.receive(frame(1) + frame(2, queue_id=2) + frame(3))
    assert one.alone == []
    assert one.arrivals == {}
    store.confirm(store.max_physical_offset)
    assert one.arrivals == {("T", 1): 3, ("T", 2): 2}


async def test_a_run_for_which_its_queue_has_no_room_is_put_as_far_as_there_is_some() -> None:
    """The last message that the queue's file has room for is the first of the run."""
    nodes = Node(), Node(has_loops=False)
    for node_ in nodes:
        node_.put("T", 1)
        queue = node_.broker.store.queues.find("T", 1)
        assert queue is not None
        last = queue.files.files[-1]
        while last.allocated_position - last.wrote_position >= 40:
            node_.put("T", 1)
        node_.broker.simulated_disk.capacity_bytes = node_.broker.simulated_disk.used_bytes
        await node_.receive(b"".join(frame(n, queue_id=1) for n in range(5)))
        assert [answer.code == 0 for answer in node_.answers()] == [True] + 4 * [False]
        assert node_.broker.store.refusal is None
    assert nodes[0].state() == nodes[1].state()
