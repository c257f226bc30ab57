"""Clients that receive by POP: they own no queue, and say of each message that it is done.

What is to fail is left alone, or given back after a while. Some acknowledge too late, and some when
a master has gone; the handle is sent to whoever is master then.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY
from tandem.wire.pop_headers import (
    INIT_MODE_MIN,
    AckMessageRequestHeader,
    AckMessageResponseHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from tandem.wire.pop_offsets import PoppedQueue, decode_start_offsets
from tandem.wire.receipt_handle import (
    ReceiptHandle,
    TopicMark,
    decode_receipt_handle,
    encode_receipt_handle,
    pop_retry_topic,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tests.sim.consumers.client import RETRY_SECONDS, Client, NoAnswerError, Place, wall_clock_ms
from tests.sim.consumers.producer import Producer
from tests.sim.consumers.seen import Sent
from tests.sim.pop.seen import Acknowledged, Got, PopSeen

POLL_MS: Final = 400
PAUSES_SECONDS: Final = (0.1, 0.3, 0.6)
"""Of one that does not wait, after an answer without a message."""

ANSWER_SECONDS: Final = 2.5
GIVES_BACK_CHANCE: Final = 0.5
"""What fails is left alone else."""

SELDOM_GIVES_BACK_CHANCE: Final = 0.1
"""Of one that does not wait: what is given back has the broker look at all times."""

INVISIBLE_MS: Final = (1_500, 3_000)
MESSAGES_MAX: Final = 4
RETRIES: Final = 3
ATTEMPTS: Final = 4
TASKS: Final = 2
_POP_CK: Final = "POP_CK"


class PopProducer(Producer):
    """Sends each message once more, under another key, if it got no answer."""

    async def _send_one(self) -> None:
        chance = self.place.chance
        topic = chance.choice(self.topics)
        sent = Sent(key=self._next_key(), topic=topic, invoked_at=trio.current_time())
        self.seen.sent[sent.key] = sent
        try:
            answer = await self._send(sent.key, topic, {}, sys_flag=0)
        except NoAnswerError as error:
            self.note(f"{sent.key}: {error}")
            await self._find_routes()
            return
        self.note(f"{sent.key} {topic}: {answer.code} {answer.remark}")
        if answer.code:
            await trio.sleep(0.05)
            await self._find_routes()
            return
        sent.is_acknowledged = True
        sent.ended_at = trio.current_time()


class PopConsumer(Client):
    """One client of a group. `fails` says how often a message is to fail, by its key.

    One that `lingers` lets messages gather, so that one answer has several queues. One that does
    not wait has pollTime 0, and asks again after a pause.
    """

    seen: PopSeen

    def __init__(
        self,
        place: Place,
        ip: str,
        life: int,
        *,
        group: str,
        topic: str,
        is_orderly: bool,
        fails: Callable[[str], int],
        lingers: bool = False,
        waits: bool = True,
    ) -> None:
        super().__init__(place, ip, life)
        self.group = group
        self.topics = (topic,)
        self._is_orderly = is_orderly
        self._fails = fails
        self._lingers = lingers
        self._waits = waits
        self._gives_back_chance = GIVES_BACK_CHANCE if waits else SELDOM_GIVES_BACK_CHANCE

    def _tasks(self) -> list[Callable[[], Awaitable[None]]]:
        return [self._receive] * TASKS

    async def _receive(self) -> None:
        while True:
            if self._lingers:
                await trio.sleep(self.place.chance.choice((0.2, 0.6, 1.0)))
            try:
                messages = await self._pop()
            except NoAnswerError as error:
                self.note(f"pop: {error}")
                await trio.sleep(RETRY_SECONDS)
                await self._find_routes()
                continue
            for got, handle in messages:
                if self._is_orderly:
                    await self._handle(got, handle)
                else:
                    self._nursery.start_soon(self._handle, got, handle)
            if not messages and not self._waits:
                await trio.sleep(self.place.chance.choice(PAUSES_SECONDS))

    async def _pop(self) -> list[tuple[Got, ReceiptHandle]]:
        chance = self.place.chance
        (topic,) = self.topics
        invisible_ms = chance.choice(INVISIBLE_MS)
        header = PopMessageRequestHeader(
            self.group,
            topic,
            -1,
            chance.randint(1, MESSAGES_MAX),
            invisible_ms,
            POLL_MS if self._waits else 0,
            INIT_MODE_MIN,
            wall_clock_ms(),
            "TAG",
            "*",
            self._is_orderly,
        )
        asked_at = trio.current_time()
        answer = await self.ask(
            self.master(topic), RequestCode.POP_MESSAGE, header, timeout_seconds=ANSWER_SECONDS
        )
        if answer.code in {209, 210}:
            return []
        if answer.code:
            raise NoAnswerError(f"{answer.code} {answer.remark}")
        self.seen.answer_count += 1
        said = answer.decode_header(PopMessageResponseHeader)
        starts = decode_start_offsets(said.start_offset_info or "")
        found = []
        for message in decode_messages(answer.body):
            handle = _handle_of(message, said, starts, invisible_ms)
            got = Got(
                group=self.group,
                client=self.client_id,
                key=message.properties[PROPERTY_UNIQUE_KEY],
                topic=pop_retry_topic(topic, self.group, handle.mark) if handle.mark else topic,
                queue_id=handle.queue_id,
                offset=handle.queue_offset,
                pop_time_ms=handle.pop_time_ms,
                reconsume_times=message.reconsume_times,
                asked_at=asked_at,
                answered_at=trio.current_time(),
                answer=self.seen.answer_count,
                earliest_again=asked_at + invisible_ms / 1000,
            )
            self.note(f"got {got.key} {got.topic} {got.queue_id} {got.offset} {got.pop_time_ms}")
            self.seen.got.append(got)
            found.append((got, handle))
        return found

    async def _handle(self, got: Got, handle: ReceiptHandle) -> None:
        chance = self.place.chance
        times = got.reconsume_times
        if self._is_orderly:
            times = sum(each.key == got.key for each in self.seen.got) - 1
        is_over = self.place.quits()
        if times < self._fails(got.key) and not (is_over and self._is_orderly):
            if chance.random() < self._gives_back_chance:
                await self._give_back(got, handle)
            return
        await trio.sleep(0.0 if is_over else chance.choice((0.0, 0.0, 0.0, 0.2, 1.0, 4.0)))
        await self._ack(got, handle)

    async def _ack(self, got: Got, handle: ReceiptHandle) -> None:
        """Say that a message is done, until somebody answers."""
        header = AckMessageRequestHeader(
            self.group, got.topic, got.queue_id, encode_receipt_handle(handle), got.offset
        )
        for _ in range(ATTEMPTS):
            ack = Acknowledged(got=got, asked_at=trio.current_time())
            self.seen.acks.append(ack)
            answer = await self._answer(RequestCode.ACK_MESSAGE, header)
            if answer is not None:
                ack.answered_at = trio.current_time()
                said = answer.decode_header(AckMessageResponseHeader)
                ack.is_stale = bool(said.is_stale)
                ack.is_good = not ack.is_stale
                self.note(f"ack {got.key} {got.offset}: {'stale' if ack.is_stale else 'good'}")
                return
            await trio.sleep(RETRY_SECONDS)
            await self._find_routes()

    async def _give_back(self, got: Got, handle: ReceiptHandle) -> None:
        """Have it come again sooner, or later."""
        invisible_ms = self.place.chance.choice((100, 1_000, 4_000))
        header = ChangeInvisibleTimeRequestHeader(
            self.group,
            got.topic,
            got.queue_id,
            encode_receipt_handle(handle),
            got.offset,
            invisible_ms,
        )
        earliest = trio.current_time() + invisible_ms / 1000
        before = got.earliest_again
        got.earliest_again = min(before, earliest)
        answer = await self._answer(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        if answer is not None and trio.current_time() < before:
            got.earliest_again = earliest
            self.note(f"give back {got.key} {got.offset} {invisible_ms}")

    async def _answer(self, code: int, header: object) -> RemotingCommand | None:
        """Return an answer that says that all is well."""
        (topic,) = self.topics
        try:
            answer = await self.ask(
                self.master(topic),
                code,
                header,  # type: ignore[arg-type]
                timeout_seconds=ANSWER_SECONDS,
            )
        except NoAnswerError as error:
            self.note(f"{code}: {error}")
            return None
        if answer.code:
            self.note(f"{code}: {answer.code} {answer.remark}")
            return None
        return answer


def _handle_of(
    message: MessageExt,
    said: PopMessageResponseHeader,
    starts: dict[PoppedQueue, int],
    invisible_ms: int,
) -> ReceiptHandle:
    if (text := message.properties.get(_POP_CK)) is not None:
        return decode_receipt_handle(text)
    start = starts[PoppedQueue(TopicMark.NORMAL, message.queue_id)]
    return ReceiptHandle(
        start,
        said.pop_time,
        invisible_ms,
        said.revive_qid,
        TopicMark.NORMAL,
        "broker-a",
        message.queue_id,
        message.queue_offset,
    )
