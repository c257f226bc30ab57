"""A broker and one connection to it, and requests to send of every kind."""

from typing import Final

import msgspec
from hypothesis import strategies as st

from ha.results import Ack
from node.handlers.send_message import SendMessage
from node.handlers.send_runs import SendRunHandler, send_runs
from node.remoting.connection import Connection
from node.remoting.dispatcher import Answer, Dispatcher
from node.remoting.server import serve_requests
from node.remoting.turns import Turns
from store import PutMessage, PutMessageStatus
from store.results import Arrival
from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import Host
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeader
from tests.node.doubles import CLIENT, NOW_MS, Broker, FakeReplication, FakeStream
from tests.node.handlers.send_requests import HEADER, Waiters, with_more
from tests.support.listening import listen

SEND: Final = RequestCode.SEND_MESSAGE_V2
PACKED: Final = SerializeType.MSGPACK
USUAL: Final = "KEYS\x01k1 k2\x02UNIQ_KEY\x017F00000100002A9F\x02TAGS\x01A\x02"
ENCODINGS: Final = [SerializeType.JSON, SerializeType.MSGPACK]
CODES: Final = [RequestCode.SEND_MESSAGE, SEND]


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
