"""Requests of POP at their limits and beyond, and what a broker answers.

Each case has a topic and a group of its own. Its text is what was answered, one code for each
request, and after a bar the bodies that came again.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from tandem.client import BlockingAdmin
from tandem.wire.batch_ack import BatchAck, BatchAckMessageRequestBody, encode_bits
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import decode_messages
from tandem.wire.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from tandem.wire.pop_offsets import PoppedQueue, decode_start_offsets
from tandem.wire.receipt_handle import (
    ReceiptHandle,
    decode_receipt_handle,
    encode_receipt_handle,
    mark_of,
)
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import Header, SendMessageRequestHeaderV2
from tests.compat.targets import BROKER, Target, TargetName
from tests.support.patience import PATIENCE_SECONDS, wait_until

INVISIBLE_MS: Final = 6_000
LONG_MS: Final = 600_000
DAY_MS: Final = 86_400_000
LAST: Final = "last"
"""Popped after all that a case pops. When it has come for the third time, all that comes has."""

CASES_AT_A_TIME: Final = 12
QUEUES: Final = 2


class Delivery(msgspec.Struct, frozen=True):
    """A message, and its handle. `topic` is the one in which it is."""

    body: str
    topic: str
    tries: int
    handle: ReceiptHandle


class Case:
    """Asks a broker, and keeps what it answered."""

    def __init__(self, address: str, number: int) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_SECONDS)
        self._frames = FrameBuffer()
        self._opaques = itertools.count(1)
        self.topic = f"pop-codes-{number}"
        self.other = f"pop-codes-other-{number}"
        self.group = f"pop-codes-group-{number}"
        self.codes: list[str] = []

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def ask(self, code: int, header: Header | None, body: bytes = b"") -> RemotingCommand:
        """Return what is answered."""
        opaque = next(self._opaques)
        self._socket.sendall(encode_frame(RemotingCommand(code, opaque, ext=header, body=body)))
        while True:
            while (answer := self._frames.next_command()) is not None:
                if answer.opaque == opaque and answer.is_response:
                    return answer
            data = self._socket.recv(65_536)
            assert data, "the broker has closed the connection"
            self._frames.receive_data(data)

    def note(self, answer: RemotingCommand) -> RemotingCommand:
        """Keep the code of an answer."""
        self.codes.append(str(answer.code))
        return answer

    def send(self, *bodies: str, topic: str = "", queue_id: int = 0) -> None:
        """Send to one queue."""
        for body in bodies:
            header = SendMessageRequestHeaderV2(
                "pop-codes", topic or self.topic, "TBW102", 4, queue_id, 0, 0, 0
            )
            answer = self.ask(RequestCode.SEND_MESSAGE_V2, header, body.encode())
            assert answer.code == 0, answer.remark

    def ask_pop(
        self,
        count: int = 32,
        *,
        invisible_ms: int = INVISIBLE_MS,
        queue_id: int = 0,
        topic: str = "",
        group: str = "",
        order: bool = False,
        exp: str = "*",
        exp_type: str = "TAG",
        attempt_id: str | None = None,
    ) -> RemotingCommand:
        """Return the answer to POP_MESSAGE, which does not wait."""
        header = PopMessageRequestHeader(
            group or self.group,
            topic or self.topic,
            queue_id,
            count,
            invisible_ms,
            0,
            0,
            exp_type=exp_type,
            exp=exp,
            order=order,
            attempt_id=attempt_id,
            born_time=time.time_ns() // 1_000_000,
        )
        return self.ask(RequestCode.POP_MESSAGE, header)

    def pop(self, count: int = 32, **more: object) -> list[Delivery]:
        """Return what a pop gives, with handles made as RocketMQ's client makes them."""
        return _deliveries(self.ask_pop(count, **more), self.group)  # type: ignore[arg-type]

    def pop_all(self, count: int, **more: object) -> list[Delivery]:
        """Pop until there are so many. A broker may need some time for what was just sent."""
        found: list[Delivery] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found) < count:
            assert time.monotonic() < deadline, f"{self.topic}: {found}"
            found += self.pop(count - len(found), **more)
        return found

    def has_message(self) -> bool:
        """Whether a pop of the first queue would find something."""
        header = PeekMessageRequestHeader(self.group, self.topic, 0, 1)
        return self.ask(RequestCode.PEEK_MESSAGE, header).code == 0

    def ack(
        self,
        delivery: Delivery,
        *,
        extra_info: str | None = None,
        topic: str = "",
        group: str = "",
        queue_id: int | None = None,
        offset: int | None = None,
    ) -> None:
        """ACK_MESSAGE."""
        handle = delivery.handle
        header = AckMessageRequestHeader(
            group or self.group,
            topic or delivery.topic,
            handle.queue_id if queue_id is None else queue_id,
            encode_receipt_handle(handle) if extra_info is None else extra_info,
            handle.queue_offset if offset is None else offset,
        )
        self.note(self.ask(RequestCode.ACK_MESSAGE, header))

    def change(
        self,
        delivery: Delivery,
        invisible_ms: int,
        *,
        extra_info: str | None = None,
        offset: int | None = None,
    ) -> Delivery:
        """CHANGE_MESSAGE_INVISIBLETIME; return the delivery with its new handle, if any."""
        handle = delivery.handle
        header = ChangeInvisibleTimeRequestHeader(
            self.group,
            delivery.topic,
            handle.queue_id,
            encode_receipt_handle(handle) if extra_info is None else extra_info,
            handle.queue_offset if offset is None else offset,
            invisible_ms,
        )
        answer = self.note(self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header))
        if answer.code:
            return delivery
        said = answer.decode_header(ChangeInvisibleTimeResponseHeader)
        changed = msgspec.structs.replace(
            handle,
            start_offset=handle.queue_offset,
            pop_time_ms=said.pop_time,
            invisible_ms=said.invisible_time,
        )
        return msgspec.structs.replace(delivery, handle=changed)

    def batch(self, *acks: BatchAck) -> None:
        """BATCH_ACK_MESSAGE."""
        body = msgspec.json.encode(BatchAckMessageRequestBody(list(acks), BROKER))
        self.note(self.ask(RequestCode.BATCH_ACK_MESSAGE, None, body))

    def entry(self, delivery: Delivery) -> BatchAck:
        """One message, in a batch of acknowledgements."""
        handle = delivery.handle
        return BatchAck(
            encode_bits([handle.queue_offset - handle.start_offset]),
            self.group,
            handle.invisible_ms,
            handle.pop_time_ms,
            handle.queue_id,
            str(int(handle.mark)),
            handle.revive_queue_id,
            handle.start_offset,
            self.topic,
        )

    def again(self) -> Sequence[str]:
        """Wait until all has come again that comes; return the bodies."""
        self.send(LAST)
        self.pop_all(1)
        seen: set[str] = set()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for delivery in self.pop():
                if delivery.body == LAST and delivery.tries == 2:
                    return sorted(seen)
                if delivery.body != LAST:
                    seen.add(delivery.body)
            assert time.monotonic() < deadline, f"{self.topic}: {seen}"
            time.sleep(0.2)  # noqa: TID251 - waits for another process

    def wait_for(self, body: str) -> Delivery:
        """Wait until a message has come again."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for delivery in self.pop(1, invisible_ms=LONG_MS):
                if delivery.body == body:
                    return delivery
            assert time.monotonic() < deadline, f"{self.topic}: no {body}"
            time.sleep(0.2)  # noqa: TID251 - waits for another process


def _deliveries(answer: RemotingCommand, group: str) -> list[Delivery]:
    if answer.code:
        return []
    said = answer.decode_header(PopMessageResponseHeader)
    starts = decode_start_offsets(said.start_offset_info or "")
    found = []
    for message in decode_messages(answer.body):
        given = message.properties.get("POP_CK")
        if given is not None:
            handle = decode_receipt_handle(given)
            topic = handle.mark.topic(message.topic, group)
        else:
            topic, mark = message.topic, mark_of(message.topic)
            start = starts[PoppedQueue(mark, message.queue_id)]
            handle = ReceiptHandle(
                start,
                said.pop_time,
                said.invisible_time,
                said.revive_qid,
                mark,
                BROKER,
                message.queue_id,
                message.queue_offset,
            )
        found.append(Delivery(message.body.decode(), topic, message.reconsume_times, handle))
    return found


# -- cases -----------------------------------------------------------------------------------------


def one(case: Case, body: str = "a", **more: object) -> Delivery:
    """Send one, pop it."""
    case.send(body)
    (delivery,) = case.pop_all(1, **more)
    return delivery


def popped(**more: object) -> Callable[[Case], None]:
    """A pop of a queue that has a message; what comes again, if it was handed out."""

    def run(case: Case) -> None:
        case.send("a")
        wait_until(case.has_message)
        case.note(case.ask_pop(**more))  # type: ignore[arg-type]

    return run


def acked(**more: object) -> Callable[[Case], None]:
    """One is acknowledged; what comes again."""

    def run(case: Case) -> None:
        case.ack(one(case), **more)  # type: ignore[arg-type]
        case.codes += ["|", *case.again()]

    return run


def changed(invisible_ms: int, **more: object) -> Callable[[Case], None]:
    """One gets another time."""

    def run(case: Case) -> None:
        case.change(one(case), invisible_ms, **more)  # type: ignore[arg-type]
        case.codes += ["|", *case.again()]

    return run


def peeked(count: int = 1, topic: str = "", queue_id: int = 0) -> Callable[[Case], None]:
    """What PEEK_MESSAGE gives of a queue that has nothing."""

    def run(case: Case) -> None:
        header = PeekMessageRequestHeader(case.group, topic or case.topic, queue_id, count)
        case.note(case.ask(RequestCode.PEEK_MESSAGE, header))

    return run


def noticed(topic: str = "", queue_id: int = 0) -> Callable[[Case], None]:
    """NOTIFICATION of a queue that has nothing."""

    def run(case: Case) -> None:
        header = NotificationRequestHeader(
            case.group, topic or case.topic, queue_id, 0, time.time_ns() // 1_000_000
        )
        answer = case.note(case.ask(RequestCode.NOTIFICATION, header))
        if answer.code == 0:
            case.codes.append(answer.ext_fields()["hasMsg"])

    return run


def polling(topic: str = "", queue_id: int = 0) -> Callable[[Case], None]:
    """POLLING_INFO where nobody waits."""

    def run(case: Case) -> None:
        header = PollingInfoRequestHeader(case.group, topic or case.topic, queue_id)
        answer = case.note(case.ask(RequestCode.POLLING_INFO, header))
        if answer.code == 0:
            case.codes.append(answer.ext_fields()["pollingNum"])

    return run


def asked(code: int, body: bytes | None) -> Callable[[Case], None]:
    """A request that is a body alone; `TOPIC` and `GROUP` in it are the case's."""

    def run(case: Case) -> None:
        given = (body or b"").replace(b"TOPIC", case.topic.encode())
        case.note(case.ask(code, None, given.replace(b"GROUP", case.group.encode())))

    return run


def ack_twice(case: Case) -> None:
    delivery = one(case)
    case.ack(delivery)
    case.ack(delivery)
    case.codes += ["|", *case.again()]


def ack_when_its_time_is_over(case: Case) -> None:
    """It has come again: the old handle is not good for the new delivery."""
    first = one(case)
    second = case.wait_for("a")
    case.ack(first)
    moved = case.change(second, 1_000)
    case.codes.append("same" if moved is second else "new")
    case.codes += ["|", *case.again()]


def ack_with_the_handle_of_another_topic(case: Case) -> None:
    case.send("b", topic=case.other)
    (theirs,) = case.pop_all(1, topic=case.other, invisible_ms=LONG_MS)
    mine = one(case)
    assert theirs.handle.pop_time_ms != mine.handle.pop_time_ms
    case.ack(mine, extra_info=encode_receipt_handle(theirs.handle))
    case.codes += ["|", *case.again()]


def ack_the_other_queue(case: Case) -> None:
    """Queue 1 has a message at the same offset, which somebody else has."""
    case.send("b", queue_id=1)
    case.pop_all(1, queue_id=1, invisible_ms=LONG_MS)
    case.ack(one(case), queue_id=1)
    case.codes += ["|", *case.again()]


def batch_of_good_ones(case: Case) -> None:
    case.send("a", "b", "c")
    a, b, _ = case.pop_all(3)
    case.batch(case.entry(a), case.entry(b))
    case.codes += ["|", *case.again()]


def _batch_with(make: Callable[[BatchAck], BatchAck]) -> Callable[[Case], None]:
    """The second of three entries is another one."""

    def run(case: Case) -> None:
        case.send("a", "b", "c")
        a, b, c = (case.entry(each) for each in case.pop_all(3))
        case.batch(a, make(b), c)
        case.codes += ["|", *case.again()]

    return run


def _with(**more: object) -> Callable[[BatchAck], BatchAck]:
    return lambda entry: msgspec.structs.replace(entry, **more)


def change_twice(case: Case) -> None:
    """The second time by the handle of the first."""
    first = case.change(one(case), LONG_MS)
    case.change(first, 1_000)
    case.codes += ["|", *case.again()]


def change_twice_by_one_handle(case: Case) -> None:
    delivery = one(case)
    case.change(delivery, LONG_MS)
    case.change(delivery, LONG_MS)
    case.codes += ["|", *case.again()]


def change_what_is_acknowledged(case: Case) -> None:
    delivery = one(case)
    case.ack(delivery)
    case.change(delivery, 1_000)
    case.codes += ["|", *case.again()]


def change_then_acknowledge_by_the_old_handle(case: Case) -> None:
    delivery = one(case)
    case.change(delivery, 1_000)
    case.ack(delivery)
    case.codes += ["|", *case.again()]


def in_order(case: Case) -> None:
    """As long as one message is with somebody nobody gets the next ones."""
    case.send("a", "b")
    (held,) = case.pop_all(1, order=True, invisible_ms=LONG_MS)
    case.note(case.ask_pop(1, order=True))
    case.ack(held)
    case.codes += [each.body for each in case.pop_all(1, order=True)]


def in_order_by_the_same_attempt(case: Case) -> None:
    case.send("a", "b")
    case.pop_all(1, order=True, invisible_ms=LONG_MS, attempt_id="one")
    case.note(case.ask_pop(1, order=True, attempt_id="two"))
    case.codes += [each.body for each in case.pop_all(1, order=True, attempt_id="one")]


def in_order_acknowledged_by_another_pop_time(case: Case) -> None:
    case.send("a", "b")
    (held,) = case.pop_all(1, order=True, invisible_ms=LONG_MS)
    wrong = msgspec.structs.replace(held.handle, pop_time_ms=held.handle.pop_time_ms - 1)
    case.ack(held, extra_info=encode_receipt_handle(wrong))
    case.note(case.ask_pop(1, order=True))


def in_order_acknowledged_what_was_not_given(case: Case) -> None:
    case.send("a", "b")
    (held,) = case.pop_all(1, order=True, invisible_ms=LONG_MS)
    case.ack(held, offset=1)
    case.note(case.ask_pop(1, order=True))


MODE: Final = b'{"consumerGroup":"GROUP","mode":"POP","popShareQueueNum":0,"topic":"TOPIC"}'

CASES: Final[Mapping[str, Callable[[Case], None]]] = {
    "pop": popped(),
    "pop 0 messages": popped(count=0),
    "pop 33 messages": popped(count=33),
    "pop -1 messages": popped(count=-1),
    "pop for 0 ms": popped(invisible_ms=0),
    "pop for -1 ms": popped(invisible_ms=-1),
    "pop for 4 days": popped(invisible_ms=4 * DAY_MS),
    "pop for 2**63 - 1 ms": popped(invisible_ms=2**63 - 1),
    "pop an empty queue": popped(queue_id=1),
    "pop queue 2 of 2": popped(queue_id=QUEUES),
    "pop queue -7": popped(queue_id=-7),
    "pop an unknown topic": popped(topic="pop-codes-nowhere"),
    "pop with bad SQL": popped(exp="a >", exp_type="SQL92"),
    "pop with an unknown kind of filter": popped(exp="a", exp_type="NONE"),
    "acknowledge": acked(),
    "acknowledge twice": ack_twice,
    "acknowledge when its time is over": ack_when_its_time_is_over,
    "acknowledge by garbage": acked(extra_info="garbage"),
    "acknowledge by nothing": acked(extra_info=""),
    "acknowledge by words for numbers": acked(extra_info="a b c d e f g h"),
    "acknowledge in an unknown topic": acked(topic="pop-codes-nowhere"),
    "acknowledge in queue 2 of 2": acked(queue_id=QUEUES),
    "acknowledge offset -1": acked(offset=-1),
    "acknowledge the offset that comes next": acked(offset=1),
    "acknowledge an offset beyond that": acked(offset=2),
    "acknowledge as another group": acked(group="pop-codes-others"),
    "acknowledge by the handle of another topic": ack_with_the_handle_of_another_topic,
    "acknowledge in the other queue": ack_the_other_queue,
    "batch": batch_of_good_ones,
    "batch, one with mark 7": _batch_with(_with(mark="7")),
    "batch, one in queue 2 of 2": _batch_with(_with(queue_id=QUEUES)),
    "batch, one of an unknown topic": _batch_with(_with(topic="pop-codes-nowhere")),
    "batch, one with another pop time": _batch_with(_with(pop_time_ms=1)),
    "batch, one far beyond the end": _batch_with(_with(start_offset=1_000)),
    "batch, one without bits": _batch_with(_with(bits="")),
    "batch, one with bits that are no base64": _batch_with(_with(bits="%%%")),
    "batch of nothing": asked(RequestCode.BATCH_ACK_MESSAGE, b'{"acks":[]}'),
    "batch that is no JSON": asked(RequestCode.BATCH_ACK_MESSAGE, b"garbage"),
    "change to 1 s": changed(1_000),
    "change to 0 ms": changed(0),
    "change to -1 ms": changed(-1),
    "change to 4 days": changed(4 * DAY_MS),
    "change by garbage": changed(1_000, extra_info="garbage"),
    "change the offset that comes next": changed(1_000, offset=1),
    "change twice": change_twice,
    "change twice by one handle": change_twice_by_one_handle,
    "change what is acknowledged": change_what_is_acknowledged,
    "change, acknowledge by the old handle": change_then_acknowledge_by_the_old_handle,
    "in order": in_order,
    "in order, by the same attempt": in_order_by_the_same_attempt,
    "in order, acknowledge by another pop time": in_order_acknowledged_by_another_pop_time,
    "in order, acknowledge what was not given": in_order_acknowledged_what_was_not_given,
    "peek at nothing": peeked(),
    "peek at 0 messages": peeked(0),
    "peek at 33 messages": peeked(33),
    "peek into queue 2 of 2": peeked(queue_id=QUEUES),
    "peek into an unknown topic": peeked(topic="pop-codes-nowhere"),
    "notice nothing": noticed(),
    "notice in queue 2 of 2": noticed(queue_id=QUEUES),
    "notice in an unknown topic": noticed(topic="pop-codes-nowhere"),
    "how many wait": polling(),
    "how many wait in queue 2 of 2": polling(queue_id=QUEUES),
    "how many wait in an unknown topic": polling(topic="pop-codes-nowhere"),
    "set the mode": asked(RequestCode.SET_MESSAGE_REQUEST_MODE, MODE),
    "set the mode of a retry topic": asked(
        RequestCode.SET_MESSAGE_REQUEST_MODE, MODE.replace(b"TOPIC", b"%RETRY%GROUP")
    ),
    "set the mode of an unknown topic": asked(
        RequestCode.SET_MESSAGE_REQUEST_MODE, MODE.replace(b"TOPIC", b"pop-codes-nowhere")
    ),
    "set the mode NONE": asked(RequestCode.SET_MESSAGE_REQUEST_MODE, MODE.replace(b"POP", b"NONE")),
    "set the mode by garbage": asked(RequestCode.SET_MESSAGE_REQUEST_MODE, b"garbage"),
    "roll POP back": asked(200_056, b""),
}


EXPECTED: Final[Mapping[str, str]] = {
    "pop": "0",
    "pop 0 messages": "210",
    "pop 33 messages": "29",
    "pop -1 messages": "1",
    "pop for 0 ms": "0",
    "pop for -1 ms": "0",
    "pop for 4 days": "0",
    "pop for 2**63 - 1 ms": "0",
    "pop an empty queue": "210",
    "pop queue 2 of 2": "29",
    "pop queue -7": "0",
    "pop an unknown topic": "17",
    "pop with bad SQL": "23",
    "pop with an unknown kind of filter": "23",
    "acknowledge": "0 |",
    "acknowledge twice": "0 0 |",
    "acknowledge when its time is over": "0 0 new | a",
    "acknowledge by garbage": "1 | a",
    "acknowledge by nothing": "1 | a",
    "acknowledge by words for numbers": "1 | a",
    "acknowledge in an unknown topic": "17 | a",
    "acknowledge in queue 2 of 2": "13 | a",
    "acknowledge offset -1": "208 | a",
    "acknowledge the offset that comes next": "0 | a",
    "acknowledge an offset beyond that": "208 | a",
    "acknowledge as another group": "0 | a",
    "acknowledge by the handle of another topic": "0 | a",
    "acknowledge in the other queue": "0 | a",
    "batch": "0 | c",
    "batch, one with mark 7": "1 | b c",
    "batch, one in queue 2 of 2": "0 | b",
    "batch, one of an unknown topic": "0 | b",
    "batch, one with another pop time": "0 | b",
    "batch, one far beyond the end": "0 | b",
    "batch, one without bits": "0 | b",
    "batch, one with bits that are no base64": "1 | a b c",
    "batch of nothing": "208",
    "batch that is no JSON": "1",
    "change to 1 s": "0 | a",
    "change to 0 ms": "0 | a",
    "change to -1 ms": "0 | a",
    "change to 4 days": "1 | a",
    "change by garbage": "1 | a",
    "change the offset that comes next": "208 | a",
    "change twice": "0 0 | a",
    "change twice by one handle": "0 0 |",
    "change what is acknowledged": "0 0 | a",
    "change, acknowledge by the old handle": "0 0 | a",
    "in order": "210 0 b",
    "in order, by the same attempt": "210 a",
    "in order, acknowledge by another pop time": "0 210",
    "in order, acknowledge what was not given": "13 210",
    "peek at nothing": "19",
    "peek at 0 messages": "19",
    "peek at 33 messages": "19",
    "peek into queue 2 of 2": "29",
    "peek into an unknown topic": "17",
    "notice nothing": "0 false",
    "notice in queue 2 of 2": "29",
    "notice in an unknown topic": "17",
    "how many wait": "0 0",
    "how many wait in queue 2 of 2": "29",
    "how many wait in an unknown topic": "17",
    "set the mode": "0",
    "set the mode of a retry topic": "16",
    "set the mode of an unknown topic": "17",
    "set the mode NONE": "0",
    "set the mode by garbage": "1",
    "roll POP back": "0",
}
"""RocketMQ's broker 5.3.3."""

OURS: Final[Mapping[str, str]] = {
    "pop 0 messages": "29",
    "pop -1 messages": "29",
    "pop for 0 ms": "29",
    "pop for -1 ms": "29",
    "pop for 4 days": "29",
    "pop for 2**63 - 1 ms": "29",
    "batch, one with mark 7": "1 | a b c",
    "change to -1 ms": "29 | a",
    "change to 4 days": "29 | a",
    "change twice by one handle": "0 208 |",
    "change what is acknowledged": "0 208 |",
    "in order, acknowledge what was not given": "0 210",
    "peek at 0 messages": "29",
    "peek at 33 messages": "29",
    "set the mode NONE": "29",
    "roll POP back": "3",
}
"""Where ours is another: see docs/pop.md."""


def codes_at(target: Target) -> dict[str, str]:
    """Ask all of it, of the master; return what each was answered."""
    with BlockingAdmin(target.access) as admin:
        brokers = admin.cluster_info().broker_addr_table
        address = brokers[target.broker].broker_addrs[0]
        for number in range(len(CASES)):
            for topic in (f"pop-codes-{number}", f"pop-codes-other-{number}"):
                admin.create_topic(topic, queue_nums=QUEUES)

    def play(number: int, run: Callable[[Case], None]) -> str:
        case = Case(address, number)
        try:
            run(case)
        finally:
            case.close()
        return " ".join(case.codes)

    with ThreadPoolExecutor(CASES_AT_A_TIME) as pool:
        played = {
            name: pool.submit(play, number, run) for number, (name, run) in enumerate(CASES.items())
        }
        return {name: each.result() for name, each in played.items()}


def expected_at(name: TargetName) -> dict[str, str]:
    """What has to be answered at a target."""
    return dict(EXPECTED) if name == "real" else dict(EXPECTED) | dict(OURS)
