"""Requests that come together end as if they had come one by one, whatever they are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ha.results import Ack, Refusal
from node.handlers import parked_puts
from node.handlers.send_message import SendMessage
from node.handlers.send_runs import ONE_BY_ONE_MAX, SendRunHandler, send_runs
from node.remoting import server
from node.remoting.connection import Connection
from node.remoting.dispatcher import Answer, Dispatcher
from node.remoting.server import serve_requests
from node.remoting.turns import Turns
from store import PutMessage, PutMessageStatus
from tandem.wire import native
from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import Host
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeader
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import CLIENT, NOW_MS, Broker, FakeReplication, FakeStream
from tests.node.handlers.send_requests import HEADER, MORE, Waiters, as_in_cpp, received, with_more
from tests.support.listening import listen

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.results import Arrival

pytestmark = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")

SEND: Final = RequestCode.SEND_MESSAGE_V2
PACKED: Final = SerializeType.MSGPACK
USUAL: Final = "KEYS\x01k1 k2\x02UNIQ_KEY\x017F00000100002A9F\x02TAGS\x01A\x02"


class Node:
    """A broker and one connection to it. Without `loops` all requests are handled one by one.

    Attributes:
        alone: The opaques of the requests that were handled one by one.
        arrivals: How far each queue was said to be.
        told: What was wrong with what it has received.
    """

    def __init__(
        self,
        *,
        has_loops: bool = True,
        peer: Host = CLIENT,
        waiters: Waiters | None = None,
        is_fenced: bool = False,
    ) -> None:
        self.broker = Broker(topics=("T", "U"), is_fenced=is_fenced)
        self.replication = FakeReplication()
        wait = waiters.wait() if waiters is not None else None
        self.replication.put_waits = {Ack.REPLICATED: wait, Ack.FLUSHED: wait}
        self.told = ""
        self.arrivals: dict[tuple[str, int], int] = {}
        store = self.broker.store
        listen(store, self._arrived)
        self.send = SendMessage(
            store,
            self.broker.tables,
            self.broker.stamp,
            self.replication,
            None,
            self.broker.random,
            self.broker.locks,
            "broker-a",
            self.broker.put_times,
        )
        found = send_runs(store, suffix=self.broker.stamp.suffix, host=self.broker.host)
        self.runs = SendRunHandler(
            store, self.broker.tables, self.replication, self.send, found if has_loops else None
        )
        self.alone: list[int] = []
        codes = (RequestCode.SEND_MESSAGE, SEND, RequestCode.SEND_BATCH_MESSAGE)
        self.dispatcher = Dispatcher(dict.fromkeys(codes, self._handle), take_run=self.runs.take)
        self.stream = FakeStream(peer)
        self.connection = Connection(self.stream, self.broker.outbox)

    def _arrived(self, arrivals: list[Arrival]) -> None:
        for _, topic, queue_id, max_offset, _ in arrivals:
            self.arrivals[topic, queue_id] = max_offset

    def _handle(self, connection: Connection, command: RemotingCommand) -> Answer | None:
        self.alone.append(command.opaque)
        return self.send.handle(connection, command)

    def end_round(self) -> None:
        self.broker.store.announce()
        self.broker.outbox.flush()

    async def receive(self, *chunks: bytes) -> str:
        """Serve these bytes until the peer ends the connection; return what was wrong with them."""
        for chunk in chunks:
            self.stream.arrive(chunk)
        self.stream.end()
        try:
            await serve_requests(
                self.connection, self.dispatcher, self.end_round, FrameBuffer(), Turns()
            )
        except WireError as error:
            return str(error)
        return ""

    def put(self, topic: str, queue_id: int) -> None:
        """Make sure that a queue is there."""
        store = self.broker.store
        message = PutMessage(topic, queue_id, b"first", b"", NOW_MS, CLIENT.packed)
        assert store.puts.put_message(message).status is PutMessageStatus.PUT_OK
        store.announce()
        self.arrivals.clear()

    def answers(self) -> list[RemotingCommand]:
        return self.stream.take_frames()

    def log(self) -> bytes:
        return bytes(self.broker.store.read_log(0, 1 << 20))

    def state(self) -> object:
        """Everything that a run could have done otherwise."""
        store = self.broker.store
        log = store.commit_log
        queues = {
            (topic, queue_id): [
                queue.unit(number) for number in range(queue.min_offset, queue.next_offset)
            ]
            for topic, queue_id in store.list_queues()
            if (queue := store.queues.find(topic, queue_id)) is not None
        }
        return (
            bytes(self.stream.sent),
            self.log(),
            queues,
            (log.last_record_offset, log.last_store_timestamp_ms, log.max_offset),
            self.arrivals,
            self.broker.put_times.failed_count,
            self.connection.owed_count,
        )


def frame(
    number: int = 0,
    body: bytes = b"body",
    *,
    code: int = SEND,
    flag: int = 0,
    encoding: SerializeType = SerializeType.JSON,
    **changes: object,
) -> bytes:
    """Return a request to send."""
    header: msgspec.Struct = msgspec.structs.replace(HEADER, **{"properties": USUAL, **changes})
    if code == RequestCode.SEND_MESSAGE:
        header = SendMessageRequestHeader(**msgspec.structs.asdict(header))
    return encode_frame(
        RemotingCommand(code, number, flag, ext=header, body=body, serialize_type=encoding)
    )


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


ENCODINGS: Final = [SerializeType.JSON, SerializeType.MSGPACK]
CODES: Final = [RequestCode.SEND_MESSAGE, SEND]


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


UNUSUAL: Final[dict[str, bytes]] = {
    "another request": encode_frame(RemotingCommand(9_999, 77)),
    "one way": frame(flag=ONEWAY_FLAG),
    "batch": frame(batch=True),
    "any queue": frame(queue_id=-1),
    "no such queue": frame(queue_id=4),
    "compressed": frame(sys_flag=1),
    "consumed again": frame(reconsume_times=1),
    "a new topic": frame(topic="New"),
    "a topic of the system": frame(topic="SCHEDULE_TOPIC_XXXX"),
    "a topic of no name": frame(topic=""),
    "not ASCII": frame(topic="St\u00e4dte"),
    "no properties": frame(properties=None),
    "no unique key": frame(properties="KEYS\x01k\x02"),
    "a strange unique key": frame(properties='UNIQ_KEY\x01a"b\x02'),
    "two unique keys": frame(properties="UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02"),
    "long properties": frame(properties=USUAL + "A\x01" + "v" * 500 + "\x02"),
    "delayed": frame(properties=USUAL + "DELAY\x013\x02"),
    "its own time": frame(properties=USUAL + "TIMER_DELAY_SEC\x013\x02"),
    "a transaction": frame(properties=USUAL + "TRAN_MSG\x01true\x02"),
    "inner batch": frame(properties=USUAL + "INNER_NUM\x012\x02"),
    "been through a broker": frame(properties=USUAL + "CLUSTER\x01D\x02"),
    "been traced": frame(properties=USUAL + "TRACE_ON\x01false\x02"),
    "popped": frame(properties=USUAL + "POP_CK\x011 2 3\x02"),
    "a region": frame(properties=USUAL + "MSG_REGION\x01x\x02"),
    "for the disks": frame(properties=USUAL + "TANDEM_ACK\x01flushed\x02"),
    "waits perhaps": frame(properties=USUAL + "WAIT\x01True\x02"),
    "waits twice": frame(properties=USUAL + "WAIT\x01true\x02WAIT\x01false\x02"),
    "no value": frame(properties=USUAL + "KEYS\x02"),
    "two values": frame(properties=USUAL + "KEYS\x01a\x01b\x02"),
    "a number as number": frame().replace(b'"e":"1"', b'"e":1  '),
    "a field twice": frame().replace(b'"a":"PG"', b'"b":"U" '),
    "a field twice, once escaped": frame(topic="12345678901234").replace(
        b'"b":"12345678901234"', b'"b":"U","\\u0062":"T"'
    ),
    "a large body": frame(body=bytes(100_001)),
    "a zero in front": frame().replace(b'"g":"1', b'"g":"0'),
    "a number of 19 digits": frame(born_timestamp=2**62),
    "no default topic": frame().replace(b'"c":', b'"x":'),
    "a field twice, all there": frame(broker_name="U").replace(b'"n":', b'"a":'),
    "packed, a field twice": frame(broker_name="U", encoding=PACKED).replace(b"\xa1n", b"\xa1a"),
    "packed, no default topic": frame(encoding=PACKED).replace(b"\xa1c", b"\xa1n"),
    "no name": frame(properties=USUAL + "\x01v\x02"),
    "packed, one way": frame(flag=ONEWAY_FLAG, encoding=PACKED),
    "packed, batch": frame(batch=True, encoding=PACKED),
    "packed, compressed": frame(sys_flag=1, encoding=PACKED),
    "packed, a time beyond all": frame(born_timestamp=2**63 - 1, encoding=PACKED).replace(
        b"\xcf\x7f\xff", b"\xcf\xff\xff"
    ),
    "signed": with_more(frame(), {"AccessKey": "mallory", "Signature": "wrong"}),
    "packed, signed": with_more(
        frame(encoding=PACKED), {"AccessKey": "mallory", "Signature": "wrong"}
    ),
    "a field of nobody": with_more(frame(), {"z": "1"}),
    "ROCKETMQ": frame(encoding=SerializeType.ROCKETMQ),
}


NOWHERE: Final = ("no such queue", "a new topic", "a topic of the system")


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


PIECES = st.sampled_from(
    [
        *("KEYS\x01a b\x02", "TAGS\x01t\x02", "WAIT\x01true\x02", "WAIT\x01false\x02", "W\x01"),
        *("UNIQ_KEY\x01K1\x02", "UNIQ_KEY\x01\x02", "\x02", "\x01", "a", "XCLUSTER\x01c\x02"),
        *("DELAY\x011\x02", "WAIT\x01\x02", "TRAN_MSG\x01false\x02", "M\x01MODEL\x02", '"', "\\"),
        *("TANDEM_ACK\x01x\x02", "\u00e4", "\0", "\n", "/", "\x7f", "TAGS\x01\x02"),
    ]
)
PROPERTIES = st.one_of(
    st.none(),
    st.just(USUAL),
    st.just(USUAL[:-1]),
    st.lists(PIECES, max_size=8).map(lambda pieces: "UNIQ_KEY\x01K9\x02" + "".join(pieces)),
    st.lists(PIECES, max_size=8).map("".join),
)
REQUESTS = st.builds(
    frame,
    st.integers(0, 2**31 - 1),
    st.binary(max_size=40),
    code=st.sampled_from([*CODES, SEND, RequestCode.SEND_BATCH_MESSAGE]),
    flag=st.sampled_from([0, 0, 0, ONEWAY_FLAG]),
    encoding=st.sampled_from([*ENCODINGS, *ENCODINGS, SerializeType.ROCKETMQ]),
    topic=st.sampled_from(["T", "T", "T", "U", "%RETRY%g", "TBW102", "x" * 200]),
    queue_id=st.sampled_from([0, 1, 2, 3, 1, 2, -1, 4, 300]),
    sys_flag=st.sampled_from([0, 0, 0, 1, 16]),
    born_timestamp=st.integers(-(2**63), 2**63 - 1) | st.just(NOW_MS),
    properties=PROPERTIES,
    reconsume_times=st.sampled_from([None, 0, 0, 2]),
    unit_mode=st.sampled_from([None, False, True]),
    max_reconsume_times=st.sampled_from([None, 16, -5]),
    batch=st.sampled_from([None, False, False, True]),
    broker_name=st.sampled_from([None, "broker-a"]),
)


@settings(max_examples=300)
@given(received(REQUESTS | st.just(frame(5)) | REQUESTS.map(as_in_cpp)))
def test_any_requests_end_as_if_they_had_come_one_by_one(chunks: list[bytes]) -> None:
    trio.run(partial(alike, *chunks))


@settings(max_examples=100)
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
