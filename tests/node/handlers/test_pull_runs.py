"""Pulls that come together end as if they had come one by one, whatever they are."""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import pytest
import trio
import trio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from node.handlers.pull_message import RUN_TAGS_MAX, PullMessage
from node.handlers.pull_runs import PullRunHandler, pull_runs
from node.remoting.connection import OUT_BYTES_MAX, Connection
from node.remoting.dispatcher import Answer, Dispatcher
from node.remoting.server import serve_requests
from node.remoting.turns import Turns
from store import PutMessage
from tandem.wire import native
from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import decode_messages
from tandem.wire.pull_run import ANSWERS_BYTES_MAX, PLACES_MAX, PULLS_MAX
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageRequestHeader, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import CLIENT, NOW_MS, Broker, FakeStream
from tests.node.handlers.send_requests import MORE, as_in_cpp, received, with_more

pytestmark = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")

PULL: Final = RequestCode.PULL_MESSAGE
LITE: Final = RequestCode.LITE_PULL_MESSAGE
JSON: Final = SerializeType.JSON
PACKED: Final = SerializeType.MSGPACK
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4

HEADER: Final = PullMessageRequestHeader(
    consumer_group="g",
    topic="T",
    queue_id=0,
    queue_offset=0,
    max_msg_nums=32,
    sys_flag=SUBSCRIPTION,
    commit_offset=0,
    suspend_timeout_millis=15_000,
    sub_version=1_700_000_000_000,
    subscription="*",
)


def pull(
    number: int = 0,
    *,
    code: int = PULL,
    flag: int = 0,
    encoding: SerializeType = JSON,
    body: bytes = b"",
    **changes: object,
) -> bytes:
    """Return a request to pull."""
    header = msgspec.structs.replace(HEADER, **changes)
    return encode_frame(
        RemotingCommand(code, number, flag, ext=header, body=body, serialize_type=encoding)
    )


class Node:
    """A broker with messages and one connection to it. Without `loops` pulls come one by one.

    Attributes:
        alone: The opaques of the requests that were handled one by one.
        told: What was wrong with what it has received.
    """

    def __init__(self, *, has_loops: bool = True, **kind: bool) -> None:
        self.broker = broker = Broker(topics=("T", "U"), **kind)
        self.pull = PullMessage(
            broker.store,
            broker.tables,
            broker.subscriptions,
            broker.holds,
            broker.resets,
            broker.stats,
        )
        found = pull_runs() if has_loops else None
        self.runs = PullRunHandler(broker.store, broker.tables, self.pull, broker.stats, found)
        self.alone: list[int] = []
        self.told = ""
        self.dispatcher = Dispatcher(
            dict.fromkeys((PULL, LITE), self._handle), take_pulls=self.runs.take
        )
        self.stream = FakeStream(CLIENT)
        self.connection = Connection(self.stream, broker.outbox)

    def _handle(self, connection: Connection, command: RemotingCommand) -> Answer | None:
        self.alone.append(command.opaque)
        self.pull.handle(connection, command)
        return None

    def put(self, *bodies: bytes, topic: str = "T", queue_id: int = 0, tag: str = "") -> None:
        properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
        for body in bodies:
            message = PutMessage(topic, queue_id, body, properties, NOW_MS, CLIENT.packed)
            assert self.broker.store.puts.put_message(message).status == 0
        self.broker.store.announce()

    def end_round(self) -> None:
        self.broker.outbox.flush()

    async def receive(self, *chunks: bytes) -> None:
        """Serve these bytes until the peer ends the connection."""
        for chunk in chunks:
            self.stream.arrive(chunk)
        self.stream.end()
        try:
            await serve_requests(
                self.connection, self.dispatcher, self.end_round, FrameBuffer(), Turns()
            )
        except WireError as error:
            self.told = str(error)

    def answers(self) -> list[RemotingCommand]:
        return self.stream.take_frames()

    def state(self) -> object:
        """Everything that a run could have done otherwise."""
        stats, offsets = self.broker.stats, self.broker.offsets
        counted = [
            (item.value, item.times)
            for topic in ("T", "U")
            for name in ("NUMS", "SIZE")
            if (item := stats.find(f"GROUP_GET_{name}", f"{topic}@g")) is not None
        ]
        return (
            self.told,
            bytes(self.stream.sent),
            (stats.found, stats.missed, counted),
            [stats.pull_offset("g", "T", queue_id) for queue_id in range(4)],
            [offsets.query("g", "T", queue_id) for queue_id in range(4)],
            self.connection.owed_count,
        )


def filled(node: Node) -> None:
    """Two queues that share the log in turns, one with runs of messages, one empty."""
    for number in range(100):
        node.put(b"a%d" % number, tag=f"t{number % 3}")
        node.put(b"b" * number, queue_id=1)
    node.put(*(b"c%d" % number for number in range(100)), queue_id=2)
    node.put(b"u", topic="U")


async def alike(
    *chunks: bytes,
    fill: Callable[[Node], None] = filled,
    room: int = 1 << 30,
    **kind: bool,
) -> Node:
    """Have two nodes receive these; return the one that takes runs."""
    ours, other = Node(**kind), Node(has_loops=False, **kind)
    for node in (ours, other):
        fill(node)
        node.stream.room = room
        await node.receive(*chunks)
    assert ours.state() == other.state()
    return ours


ENCODINGS: Final = [JSON, PACKED]


def told(answer: RemotingCommand) -> tuple[int, str | None, int, int]:
    return answer.opaque, answer.remark, answer.code, len(decode_messages(answer.body))


@pytest.mark.parametrize("code", [PULL, LITE])
@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_what_came_together_is_one_run(encoding: SerializeType, code: int) -> None:
    frames = [
        pull(opaque, code=code, encoding=encoding, queue_id=n % 3, queue_offset=7 * (n // 3))
        for n, opaque in enumerate([0, 127, 128, 255, 256, 65_535, 65_536, *range(20), 2**31 - 1])
    ]
    node = await alike(b"".join(frames))
    assert node.alone == []
    assert {told(answer)[1:] for answer in node.answers()} == {("FOUND", 0, 32)}


async def test_one_alone_is_a_run() -> None:
    node = await alike(*(pull(number, queue_offset=number) for number in range(5)))
    assert node.alone == []
    assert [answer.opaque for answer in node.answers()] == list(range(5))


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_run_ends_where_its_bytes_do(encoding: SerializeType) -> None:
    data = b"".join(pull(number, encoding=encoding, max_msg_nums=2) for number in range(9))
    for size in (7, 8, 9, 11, 12, 19, 200, 333, len(data) - 1):
        chunks = [data[start : start + size] for start in range(0, len(data), size)]
        node = await alike(*chunks)
        assert [answer.opaque for answer in node.answers()] == list(range(9))


@pytest.mark.parametrize("bad", [b"07", b"-0", b"1.0", b"1e1", b"", b"-", b"1-1", b"9" * 19, b"[]"])
async def test_numbers_may_be_without_quotes(bad: bytes) -> None:
    """So the client in C++ writes them."""
    frames = [as_in_cpp(pull(number, queue_offset=number)) for number in range(9)]
    assert b'"queueOffset":8,' in frames[8]
    node = await alike(b"".join(frames))
    assert node.alone == []
    size = len(b"77") - len(bad)
    frame = bytearray(as_in_cpp(pull(3, queue_offset=77)).replace(b":77,", b":%b," % bad))
    for at in (0, 4):
        frame[at : at + 4] = (int.from_bytes(frame[at : at + 4], "big") - size).to_bytes(4, "big")
    await alike(pull(1) + bytes(frame) + pull(2))


async def test_more_than_a_run_takes() -> None:
    def fill(node: Node) -> None:
        for config in ("T",):
            node.broker.topics.update(
                TopicConfig(topic_name=config, read_queue_nums=40, write_queue_nums=40)
            )
        for queue_id in range(2 * PLACES_MAX):
            node.put(b"x", queue_id=queue_id)

    count = 2 * PULLS_MAX + 3
    node = await alike(b"".join(pull(number) for number in range(count)), fill=fill)
    assert node.alone == []
    assert len(node.answers()) == count
    frames = (pull(number, queue_id=number) for number in range(2 * PLACES_MAX))
    node = await alike(b"".join(frames), fill=fill)
    assert node.alone == []
    assert len(node.answers()) == 2 * PLACES_MAX


UNUSUAL: Final[dict[str, bytes]] = {
    "another request": encode_frame(RemotingCommand(9_999)),
    "one way": pull(flag=ONEWAY_FLAG),
    "at the end": pull(queue_offset=100),
    "beyond the end": pull(queue_offset=1_000),
    "before the start": pull(queue_offset=-1),
    "an empty queue": pull(queue_id=3),
    "no such queue": pull(queue_id=4),
    "any queue": pull(queue_id=-1),
    "a topic that is not there": pull(topic="New"),
    "a topic of no name": pull(topic=""),
    "a long topic": pull(topic="x" * 200),
    "not ASCII": pull(topic="St\u00e4dte"),
    "no group": pull(consumer_group=""),
    "a group of no good name": pull(consumer_group="a b"),
    "an expression": pull(expression_type="SQL92", subscription="TAGS = 't1'"),
    "no known subscription": pull(sys_flag=0),
    "nothing wanted": pull(max_msg_nums=0),
    "less than nothing wanted": pull(max_msg_nums=-1),
    "a tag that nobody has": pull(subscription="nobody"),
    "with a body": pull(body=b"b"),
    "a number as number": pull().replace(b'"queueId":"0"', b'"queueId":0  '),
    "a field twice": pull().replace(b'"queueId":"0"', b'"topic":"T"  '),
    "a zero in front": pull(queue_offset=12).replace(b'set":"12"', b'set":"02"'),
    "no sub version": pull().replace(b'"subVersion"', b'"subVersioo"'),
    "one way, packed": pull(flag=ONEWAY_FLAG, encoding=PACKED),
    "at the end, packed": pull(queue_offset=100, encoding=PACKED),
    "before the start, packed": pull(queue_offset=-1, encoding=PACKED),
    "an expression, packed": pull(expression_type="SQL92", subscription="1=1", encoding=PACKED),
    "no sub version, packed": pull(encoding=PACKED).replace(b"subVersion", b"subVersioo"),
    "ROCKETMQ": pull(encoding=SerializeType.ROCKETMQ),
}


@pytest.mark.parametrize("what", UNUSUAL)
async def test_what_is_not_usual_is_handled_alone(what: str) -> None:
    """And what stands around it is not."""
    encoding = PACKED if "packed" in what else JSON
    around = [pull(number, encoding=encoding) for number in range(1, 9)]
    node = await alike(b"".join([*around[:2], UNUSUAL[what], *around[2:]]))
    assert what == "another request" or 0 in node.alone
    # What was found together with one that is not answered is not looked at a third time.
    assert set(node.alone) <= {0, 3, 4, 5, 6, 7, 8}
    assert {answer.opaque for answer in node.answers()} >= set(range(1, 9))


@pytest.mark.parametrize(
    "changes",
    [
        {"consumer_group": "h"},
        {"topic": "U"},
        {"subscription": "t1"},
        {"subscription": None},
        {"expression_type": "TAG"},
        {"sub_version": 1},
        {"max_msg_nums": 3},
        {"sys_flag": SUBSCRIPTION | SUSPEND},
        {"code": LITE},
        {"encoding": PACKED},
    ],
    ids=str,
)
async def test_pulls_of_another_kind_are_another_run(changes: dict[str, object]) -> None:
    frames = [pull(1), pull(2), pull(3, **changes), pull(4, **changes), pull(5)]  # type: ignore[arg-type]
    node = await alike(b"".join(frames))
    assert node.alone == []
    assert [answer.opaque for answer in node.answers()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("wanted", ["*", "", None, "t1", "t0 || t2", "t1||nobody", "nobody"])
@pytest.mark.parametrize("nums", [1, 2, 31, 32, 33, 1_000])
async def test_tags_are_matched(wanted: str | None, nums: int) -> None:
    frames = (
        pull(number, queue_offset=9 * number, subscription=wanted, max_msg_nums=nums)
        for number in range(12)
    )
    await alike(b"".join(frames))


async def test_many_tags_are_looked_for_one_by_one() -> None:
    """A run compares each of them with each unit."""
    for count, alone in ((RUN_TAGS_MAX, 0), (RUN_TAGS_MAX + 1, 3)):
        wanted = "||".join(f"t{number}" for number in range(count))
        node = await alike(b"".join(pull(number, subscription=wanted) for number in range(3)))
        assert len(node.alone) == alone


async def test_what_is_committed_with_a_pull_is_committed() -> None:
    frames = (
        pull(number, queue_id=number % 3, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=10 + number)
        for number in range(7)
    )
    node = await alike(b"".join(frames))
    assert node.alone == []
    assert [node.broker.offsets.query("g", "T", queue_id) for queue_id in range(3)] == [16, 14, 15]
    node = await alike(pull(consumer_group="CID_RMQ_SYS_x", sys_flag=5, commit_offset=3))
    assert node.answers()[0].code == 0


def sizes(*bodies_bytes: int) -> Callable[[Node], None]:
    return lambda node: node.put(*map(bytes, bodies_bytes))


@pytest.mark.parametrize(
    "fill",
    [
        sizes(*[90_000] * 40),  # several files of the log
        sizes(*[100_000] * 3, *[10] * 40),
        sizes(10, *[50_000] * 12),
        sizes(*[8_100] * 40),  # 32 are about what one answer may have
    ],
)
async def test_large_messages_are_found_in_whatever_files(fill: Callable[[Node], None]) -> None:
    frames = b"".join(pull(number, queue_offset=number) for number in range(12))
    node = await alike(frames, fill=fill)
    assert node.alone == []


async def test_units_in_several_files_are_read() -> None:
    fill = sizes(*[3] * 1_000)  # 300 units a file
    for offsets in ([295, 299, 300], [0, 295, 310], [900, 10, 899]):
        frames = (pull(number, queue_offset=offset) for number, offset in enumerate(offsets))
        node = await alike(b"".join(frames), fill=fill)
        assert len(node.answers()) == 3


async def test_a_tag_is_looked_for_as_far_as_one_by_one() -> None:
    def fill(node: Node) -> None:
        node.put(*[b"x"] * 820, tag="many")
        node.put(b"y", tag="last")
        node.put(*[b"x"] * 10, tag="many")

    frames = (
        pull(number, queue_offset=offset, subscription="last")
        for number, offset in enumerate([600, 619, 620, 621, 700, 820, 821, 0])
    )
    await alike(b"".join(frames), fill=fill)


async def test_what_has_left_the_log_is_looked_at() -> None:
    def fill(node: Node) -> None:
        node.put(*[bytes(90_000)] * 40)
        files = node.broker.store.commit_log.files
        assert len(files.files) > 3
        del files.files[:2]

    frames = (pull(number, queue_offset=offset) for number, offset in enumerate([0, 5, 15, 30]))
    node = await alike(b"".join(frames), fill=fill)
    assert 0 in node.alone


async def test_units_that_say_nothing_or_wrong_things_are_looked_at() -> None:
    def fill(node: Node) -> None:
        node.put(*[b"x"] * 20)
        queue = node.broker.store.queues.find("T", 0)
        assert queue is not None
        file = queue._files.files[0]
        for number, (position, value) in enumerate(
            [(8, 2**31 - 1), (8, 0), (8, 2**31), (0, 2**40), (4, 2**31), (8, 2**20)]
        ):
            at = 20 * (2 + 2 * number) + position
            file.buffer[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")

    frames = (pull(number, queue_offset=number, max_msg_nums=3) for number in range(18))
    await alike(b"".join(frames), fill=fill)


def unconfirmed(node: Node) -> None:
    queue = node.broker.store.queues.find("T", 0)
    assert queue is not None
    queue.confirmed_from = 50


async def test_units_that_are_not_known_to_be_sound_are_looked_at() -> None:
    def fill(node: Node) -> None:
        filled(node)
        unconfirmed(node)

    frames = (pull(number, queue_offset=number) for number in (49, 50, 51))
    node = await alike(b"".join(frames), fill=fill)
    assert node.alone[0] == 49


async def test_nothing_of_a_bad_range_is_handed_out() -> None:
    def fill(node: Node) -> None:
        node.put(*[b"x"] * 40)
        queue = node.broker.store.queues.find("T", 0)
        assert queue is not None
        at, size, _ = queue.unit(20)
        node.broker.store.commit_log.damage.note(at + size - 1, at + size, "a test")

    offsets = [0, 15, 20, 21, 20]
    frames = (pull(number, queue_offset=offset) for number, offset in enumerate(offsets))
    node = await alike(b"".join(frames), fill=fill)
    assert node.alone == [0, 1, 2, 3, 4]
    assert [answer.code for answer in node.answers()] == [0, 0, 14, 0, 14]


async def test_of_a_fenced_group_nothing_is_read_that_is_not_confirmed() -> None:
    def fill(node: Node) -> None:
        node.put(*[b"x"] * 5)
        node.broker.store.confirm(node.broker.store.max_physical_offset)
        node.put(*[b"y"] * 5)

    frames = (pull(number, queue_offset=number) for number in range(8))
    node = await alike(b"".join(frames), fill=fill, is_fenced=True)
    assert node.alone == [5, 6, 7]
    assert [told(answer)[3] for answer in node.answers()] == [5, 4, 3, 2, 1, 0, 0, 0]


async def test_an_operators_reset_is_told() -> None:
    def fill(node: Node) -> None:
        filled(node)
        node.broker.resets.put("g", "T", {1: 7})

    frames = (pull(number, queue_id=number % 2) for number in range(4))
    node = await alike(b"".join(frames), fill=fill)
    answers = {answer.opaque: answer.code for answer in node.answers()}
    assert answers == {0: 0, 1: ResponseCode.PULL_OFFSET_MOVED, 2: 0, 3: 0}


def forbidden(node: Node) -> None:
    config = SubscriptionGroupConfig("g", consume_enable=False)
    node.broker.tables.change_groups(config)


def not_readable(node: Node) -> None:
    node.broker.topics.update(
        TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=2)
    )


def fewer_queues(node: Node) -> None:
    node.broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=4))


@pytest.mark.parametrize("forbid", [forbidden, not_readable, fewer_queues])
async def test_who_may_not_read_gets_nothing(forbid: Callable[[Node], None]) -> None:
    def fill(node: Node) -> None:
        filled(node)
        forbid(node)

    node = await alike(b"".join(pull(n, queue_id=1 - n % 2) for n in range(6)), fill=fill)
    assert {answer.code for answer in node.answers() if answer.opaque % 2 == 0} <= {
        ResponseCode.NO_PERMISSION,
        ResponseCode.INVALID_PARAMETER,
    }


async def test_a_peer_that_takes_little_gets_all_in_order() -> None:
    node = Node()
    node.put(*[bytes(8_000)] * 40)
    node.stream.room = 100_000
    count = 40
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.connection.run_writer)
        nursery.start_soon(node.receive, b"".join(pull(number) for number in range(count)))
        while len(node.stream.sent) < count * 32 * 8_000:
            await trio.lowlevel.checkpoint()
            assert node.connection._sending_bytes + len(node.connection._out) < (
                OUT_BYTES_MAX + 2 * ANSWERS_BYTES_MAX
            )
            node.stream.make_room(70_000)
        node.stream.make_room(1 << 30)
        await node.connection.wait_idle()
        nursery.cancel_scope.cancel()
    assert [told(answer) for answer in node.answers()] == [
        (number, "FOUND", 0, 32) for number in range(count)
    ]
    assert node.alone == []


async def test_a_connection_that_is_lost_takes_no_more() -> None:
    node = Node()
    filled(node)
    node.stream.closed = True
    node.connection.write_now(memoryview(b"frames"))
    assert node.connection.is_closed
    node.connection.write_now(memoryview(b"frames"))
    assert not node.connection.is_busy


async def test_a_node_that_refuses_all_takes_none() -> None:
    node = Node()
    filled(node)
    node.dispatcher.refuse_all(lambda: "it is broken", but=())
    await node.receive(pull(1) + pull(2))
    assert [answer.code for answer in node.answers()] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2


async def test_without_a_compiler_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "loops", None)
    node = Node()
    assert node.runs.take is None
    filled(node)
    await node.receive(pull(1) + pull(2))
    assert node.alone == [1, 2]


PULLS: Final = st.builds(
    pull,
    st.integers(0, 2**31 - 1),
    code=st.sampled_from([PULL, PULL, LITE]),
    flag=st.sampled_from([0, 0, 0, 0, ONEWAY_FLAG]),
    encoding=st.sampled_from([*ENCODINGS, *ENCODINGS, SerializeType.ROCKETMQ]),
    consumer_group=st.sampled_from(["g", "g", "g", "h", "", "%RETRY%g", "g" * 300]),
    topic=st.sampled_from(["T", "T", "T", "U", "V", "x" * 200]),
    queue_id=st.sampled_from([0, 1, 2, 3, 1, 2, -1, 4, 300]),
    queue_offset=st.integers(0, 101) | st.integers(-(2**63), 2**63 - 1),
    max_msg_nums=st.sampled_from([32, 32, 1, 5, 64, 0, -1, 2**31 - 1]),
    sys_flag=st.sampled_from([4, 4, 4, 5, 0, 1]),
    commit_offset=st.sampled_from([0, 5, -1, 2**62]),
    sub_version=st.sampled_from([0, 0, 1]),
    subscription=st.sampled_from(["*", "*", "t1", "t1 || t2", "", None, "\u00e4"]),
    expression_type=st.sampled_from([None, None, "TAG", "SQL92", ""]),
    max_msg_bytes=st.sampled_from([None, None, 1_000]),
    broker_name=st.sampled_from([None, "broker-a"]),
)


@pytest.mark.slow
@settings(max_examples=4 * settings().max_examples)
@given(received(PULLS | st.just(pull(5)) | PULLS.map(as_in_cpp)))
def test_any_pulls_end_as_if_they_had_come_one_by_one(chunks: list[bytes]) -> None:
    trio.run(partial(alike, *chunks))


@pytest.mark.slow
@settings(max_examples=2 * settings().max_examples)
@given(st.lists(st.tuples(st.sampled_from(ENCODINGS), st.sampled_from([PULL, LITE]), MORE)))
def test_a_pull_that_says_who_asks_is_in_no_run(
    pulls: list[tuple[SerializeType, int, dict[str, str]]],
) -> None:
    """So what the guard says of it is the same with and without runs: it is asked."""
    frames = [
        with_more(pull(number, encoding=encoding, code=code), more)
        for number, (encoding, code, more) in enumerate(pulls)
    ]
    node = trio.run(partial(alike, b"".join(frames)))
    assert {number for number, (_, _, more) in enumerate(pulls) if more} <= set(node.alone)
