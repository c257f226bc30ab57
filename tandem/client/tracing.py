"""RocketMQ's message trace, as producers and consumers of this library write it.

    Tracer          gathers records, and makes messages of them. No I/O
    TraceSender     sends these: the tasks of a client every second, a `BlockingProducer` along with
                    its sends; both at the end

A trace never holds up what it is about: it is sent without waiting for other nodes, what does not
fit is left out and counted, and a send of traces that fails is logged and not repeated.

Source: RocketMQ 5.3.3, AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl.
"""

import logging
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import msgspec

from tandem.client.ack import Ack
from tandem.client.core import ClientCore
from tandem.client.errors import ClientError
from tandem.client.flow import Flow
from tandem.client.hooks import ConsumeOutcome, Consumption, SendEnded, TransactionEnd
from tandem.client.identity import UniqueKeys
from tandem.client.results import SendResult, SendStatus
from tandem.client.send_flow import Sender
from tandem.client.sending import NO_OPTIONS, SendSettings
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import Message, MessageExt, decode_offset_msg_id
from tandem.wire.message_properties import KEY_SEPARATOR, PROPERTY_UNIQUE_KEY, REGION
from tandem.wire.system_topics import TRACE_TOPIC
from tandem.wire.trace_records import (
    ContextCode,
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    encode_traces,
)

logger = logging.getLogger(__name__)

WAITING_RECORDS_MAX: Final = 8_192
"""That wait to be sent; more are left out."""

WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
"""The same in memory: a record has the keys of its message, which may have 32,767 bytes."""

RECORDS_PER_MESSAGE_MAX: Final = 100
"""RocketMQ's traceMsgBatchNum is 20; a message of ours has more of them."""

KEYS_CHARS_MAX: Final = 8_192
"""Of one message of traces; all properties of a message have 32,767 bytes."""

BODY_BYTES_MAX: Final = 128_000
"""RocketMQ's traceMsgMaxSize."""

FLUSH_SECONDS: Final = 1.0

SEND_TIMEOUT_MS: Final = 5_000

REST_SECONDS: Final = 30.0
"""After a failure, where sends would wait for the next flush."""

_STATES: Final = {
    "commit": "COMMIT_MESSAGE",
    "rollback": "ROLLBACK_MESSAGE",
    "unknown": "UNKNOW",
}
_TYPES: Final = {"commit": MessageType.COMMIT}


class Tracer:
    """Gathers what is to be said of messages. Both kinds of hook; see `tandem.client.hooks`.

    Attributes:
        topic: Where traces go; messages of it have none.
        left_out: How many records there was no room for, since that was last logged.
    """

    def __init__(
        self, topic: str, wall_clock_ms: Callable[[], int], next_key: Callable[[], str]
    ) -> None:
        """Gather for one client. `next_key` makes keys that nothing else has."""
        self.topic = topic
        self.left_out = 0
        self._wall_clock_ms = wall_clock_ms
        self._next_key = next_key
        self._records: deque[tuple[bytes, str]] = deque()
        self._bytes = 0

    # -- sends -----------------------------------------------------------------------------------

    def sending(
        self, group: str, messages: Sequence[Message], *, is_half: bool
    ) -> tuple[Sequence[Message], SendEnded]:
        """See `SendMessageHook`."""
        began_ms = self._wall_clock_ms()

        def ended(outcomes: Sequence[SendResult | BaseException]) -> None:
            cost_ms = self._wall_clock_ms() - began_ms
            for message, outcome in zip(messages, _each(outcomes, len(messages)), strict=True):
                if message.topic != self.topic:
                    self._note_pub(group, message, outcome, began_ms, cost_ms, is_half=is_half)

        return messages, ended

    def _note_pub(
        self,
        group: str,
        message: Message,
        outcome: SendResult | BaseException,
        began_ms: int,
        cost_ms: int,
        *,
        is_half: bool,
    ) -> None:
        result = outcome if isinstance(outcome, SendResult) else None
        msg_id = message.properties.get(PROPERTY_UNIQUE_KEY, "")
        record = Pub(
            time_ms=began_ms,
            region_id=REGION,
            group=group,
            topic=message.topic,
            msg_id=msg_id if result is None else result.msg_id,
            tags=message.tags,
            keys=str(message.keys),
            store_host="" if result is None else _store_host(result.offset_msg_id),
            body_length=len(message.body),
            cost_ms=cost_ms,
            msg_type=MessageType.HALF if is_half else _type_of(message),
            offset_msg_id="" if result is None else result.offset_msg_id,
            is_success=result is not None and result.status is SendStatus.SEND_OK,
        )
        self._note(record, record.msg_id, record.keys)

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        """See `SendMessageHook`."""
        record = EndTransaction(
            time_ms=self._wall_clock_ms(),
            region_id=REGION,
            group=group,
            topic=end.topic,
            msg_id=end.msg_id,
            tags=end.tags,
            keys=end.keys,
            store_host=_store_host(end.offset_msg_id),
            msg_type=_TYPES.get(end.state, MessageType.HALF),
            transaction_id=end.msg_id,
            state=_STATES[end.state],
            from_check=end.from_check,
        )
        self._note(record, end.msg_id, end.keys)

    # -- consuming -------------------------------------------------------------------------------

    def consuming(self, group: str, message: MessageExt) -> Consumption:
        """See `ConsumeMessageHook`. There may be no end, so the first record does not wait."""
        began_ms, request_id = self._wall_clock_ms(), self._next_key()
        if message.topic != self.topic:
            before = SubBefore(
                time_ms=began_ms,
                region_id=REGION,
                group=group,
                request_id=request_id,
                msg_id=message.msg_id,
                retry_times=message.reconsume_times,
                keys=message.keys,
            )
            self._note(before, message.msg_id, message.keys)
        return _TracedConsumption(self, group, message, began_ms, request_id)

    def consumed(
        self,
        group: str,
        message: MessageExt,
        began_ms: int,
        request_id: str,
        outcome: ConsumeOutcome,
    ) -> None:
        """Note what became of a message that was given to a consumer."""
        unsaid = (ConsumeOutcome.PUT_BACK, ConsumeOutcome.LEFT)
        if outcome in unsaid or message.topic == self.topic:
            return
        now_ms = self._wall_clock_ms()
        is_done = outcome is ConsumeOutcome.DONE
        after = SubAfter(
            request_id=request_id,
            msg_id=message.msg_id,
            cost_ms=now_ms - began_ms,
            is_success=is_done,
            keys=message.keys,
            context_code=ContextCode.SUCCESS if is_done else ContextCode.FAILED,
            time_ms=now_ms,
            group=group,
        )
        self._note(after, message.msg_id, message.keys)

    # -- messages of traces ----------------------------------------------------------------------

    def _note(self, record: TraceRecord, msg_id: str, keys: str) -> None:
        if len(self._records) >= WAITING_RECORDS_MAX or self._bytes >= WAITING_BYTES_MAX:
            self.left_out += 1
            return
        waiting = encode_traces([record]), f"{msg_id} {keys}"
        self._bytes += _size(waiting)
        self._records.append(waiting)

    def take_message(self) -> Message | None:
        """Return the next message of traces; None: nothing is left to be said."""
        if not self._records:
            return None
        records: list[bytes] = []
        keys: dict[str, None] = {}
        body_bytes = key_chars = 0
        while self._records and len(records) < RECORDS_PER_MESSAGE_MAX:
            record, named = self._records[0]
            new = dict.fromkeys(key for key in named.split(KEY_SEPARATOR) if key not in keys)
            new_chars = sum(map(len, new)) + len(new)
            is_full = (
                body_bytes + len(record) > BODY_BYTES_MAX or key_chars + new_chars > KEYS_CHARS_MAX
            )
            if records and is_full:
                break
            self._bytes -= _size(self._records.popleft())
            records.append(record)
            keys |= new
            body_bytes += len(record)
            key_chars += new_chars
        joined = KEY_SEPARATOR.join(filter(None, keys))
        properties = {PROPERTY_UNIQUE_KEY: self._next_key()}
        return Message(
            self.topic, b"".join(records), keys=joined[:KEYS_CHARS_MAX], properties=properties
        )


class _TracedConsumption:
    """See `Consumption`."""

    def __init__(
        self, tracer: Tracer, group: str, message: MessageExt, began_ms: int, request_id: str
    ) -> None:
        self._tracer = tracer
        self._known = (group, message, began_ms, request_id)

    def handling(self) -> AbstractContextManager[object]:
        return nullcontext()

    def ended(self, outcome: ConsumeOutcome) -> None:
        self._tracer.consumed(*self._known, outcome)


class TraceSender:
    """Sends what a tracer has gathered. Flows only.

    Attributes:
        tracer: Which.
    """

    def __init__(
        self, core: ClientCore, group: str, topic: str, wall_clock_ms: Callable[[], int]
    ) -> None:
        """Send for one client, over its connections."""
        # Another salt: the producer of this client makes the keys of its own.
        identity = msgspec.structs.replace(core.identity, salt=core.identity.salt ^ 1)
        keys = UniqueKeys(identity)
        self.tracer = Tracer(topic, wall_clock_ms, lambda: keys.next_key(wall_clock_ms()))
        # Source: TraceConstants.GROUP_NAME_PREFIX. No client ever joins such a group.
        settings = SendSettings(
            f"_INNER_TRACE_PRODUCER-{group}",
            Ack.ASYNC,
            retry_times_when_send_failed=1,
            send_msg_timeout_ms=SEND_TIMEOUT_MS,
            resend_until_ok=False,
        )
        self._sender = Sender(core, settings, wall_clock_ms)
        self._clock = core.clock
        self._flushed_at = -math.inf  # the clock of a client runs when it is open
        self._has_failed = False

    @property
    def is_due(self) -> bool:
        """Whether the last flush is a while ago; a longer one if it failed."""
        pause = REST_SECONDS if self._has_failed else FLUSH_SECONDS
        return self._clock() - self._flushed_at >= pause

    def flush(self) -> Flow[None]:
        """Send all that is gathered."""
        self._flushed_at = self._clock()
        while (message := self.tracer.take_message()) is not None:
            try:
                yield from self._sender.send(message, NO_OPTIONS)
            except (ClientError, ValueError) as error:
                self._note_failure(error)
                return
        self._has_failed = False
        if left_out := self.tracer.left_out:
            self.tracer.left_out = 0
            logger.warning("there was no room for %d records of traces", left_out)

    def _note_failure(self, error: Exception) -> None:
        """Log the first of several."""
        if not self._has_failed:
            logger.warning(
                "traces of messages are lost: topic %s takes none: %s", self.tracer.topic, error
            )
        self._has_failed = True
        self._flushed_at = self._clock()


def trace_topic(trace: bool | str) -> str | None:  # noqa: FBT001  an argument as users give it
    """Return the topic of an argument `trace`; None: there are to be no traces."""
    if isinstance(trace, str):
        return trace or None
    return TRACE_TOPIC if trace else None


def _size(waiting: tuple[bytes, str]) -> int:
    """Return how much memory a record takes while it waits."""
    return sum(map(sys.getsizeof, waiting))


def _type_of(message: Message) -> MessageType:
    if message.is_delayed:
        return MessageType.DELAY
    return MessageType.ORDER if message.sharding_key else MessageType.NORMAL


def _store_host(offset_msg_id: str) -> str:
    try:
        host, _ = decode_offset_msg_id(offset_msg_id)
    except (MalformedMessageError, ValueError):
        return ""
    return f"{host.ip}:{host.port}"


def _each(
    outcomes: Sequence[SendResult | BaseException], count: int
) -> Iterator[SendResult | BaseException]:
    """Yield an outcome for each message, of a batch, of many, or of a call that raised."""
    if len(outcomes) == count:
        yield from outcomes
        return
    [outcome] = outcomes
    if not isinstance(outcome, SendResult):
        yield from [outcome] * count
        return
    ids, places = outcome.msg_id.split(","), outcome.offset_msg_id.split(",")
    for index in range(count):
        yield SendResult(
            outcome.status,
            ids[index] if index < len(ids) else "",
            places[index] if index < len(places) else "",
            outcome.queue,
            outcome.queue_offset + index,
            outcome.reason,
        )
