"""What the answer to a pull says: a status, where to go on, and single messages. Pure.

A node checks a record when it takes it, and what it reads of older files; what changes on its disk
after that, a scrub finds, hours later perhaps. So each record is looked at here once more: it has
to be of the queue that was asked for, in order, with a body that its CRC fits, as Kafka's consumers
look (`check.crcs`). An answer ends before one that is not so. RocketMQ's clients hand out whatever
comes.

Source: RocketMQ 5.3.3, PullAPIWrapper.processPullResult, MQClientAPIImpl.processPullResponse.
"""

from typing import Final

from tandem.client.compression import decompressed
from tandem.client.errors import MessageDamagedError
from tandem.client.queue_flow import decode, refusal_in
from tandem.client.results import PullResult, PullStatus
from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.errors import ArgumentError, MalformedMessageError
from tandem.wire.message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAGS,
    MessageExt,
    unwrap_inner_batch,
)
from tandem.wire.pulled_records import decode_pulled
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import PullMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import LMQ_PREFIX

PULL_STATUSES: Final = {
    ResponseCode.SUCCESS.value: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND.value: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY.value: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED.value: PullStatus.OFFSET_ILLEGAL,
}

ALL_TAGS: Final = "*"

_NOT_AS_STORED: Final = COMPRESSED_FLAG | INNER_BATCH_FLAGS
"""A record with one of these may not be handed out as it is."""


class Sql92(str):
    """An expression over the properties of messages, where tags could be as well.

    The broker alone evaluates it.
    """

    __slots__ = ()


def wanted(tags: str, sql: str | None) -> str:
    """Return what a pull asks for: tags, or an `Sql92` if there is an expression.

    Raises:
        ArgumentError: both are given.
    """
    if sql is None:
        return tags
    if not is_all(tags):
        text = "tags and an SQL92 expression cannot be given both; say TAGS = 'a' in it"
        raise ArgumentError(text, "tags", "sql")
    return Sql92(sql)


def expression_type(tags: str) -> str:
    """Return in which language `tags` is, as a pull says it.

    Source: RocketMQ 5.3.3, ExpressionType.
    """
    return "SQL92" if isinstance(tags, Sql92) else "TAG"


def pull_result(
    answer: RemotingCommand, address: str, topic: str, queue_id: int, tags: str, offset: int
) -> PullResult:
    """Return what a pull of `tags` from `offset` of a queue on has found.

    Raises:
        BrokerError: it is a refusal; MessageDamagedError if the next message is damaged there.
        ConnectionLostError: its fields do not parse.
        CompressedBodyError: a body that this client cannot read.
    """
    status = PULL_STATUSES.get(answer.code)
    if status is None:
        raise refusal_in(answer, address)
    header = decode(answer, PullMessageResponseHeader, address)
    stored, malformed = decode_pulled(answer.body)
    messages, due, fault = _taken(stored, topic, queue_id, tags, offset, header.next_begin_offset)
    if fault is None and malformed is not None:
        fault = str(malformed)
    if fault is not None and due == offset:
        raise _damaged(address, topic, queue_id, offset, fault)
    if status is PullStatus.FOUND and not messages:
        status = PullStatus.NO_MATCHED_MSG
    next_offset = due if fault is not None else header.next_begin_offset
    return PullResult(status, next_offset, header.min_offset, header.max_offset, messages)


def _taken(
    stored: list[MessageExt], topic: str, queue_id: int, tags: str, offset: int, end: int
) -> tuple[list[MessageExt], int, str | None]:
    """Return the messages with one of the tags, and the offset after the last record.

    The third value says what is wrong with the record that comes next, which ends it. No CRC covers
    a number: one from `end` on, where the broker says that the next read begins, is not believed,
    nor is one that has left out numbers which come after it.
    """
    messages: list[MessageExt] = []
    takes_all = is_all(tags)
    # A light queue has messages of other topics, with the numbers that they have there.
    is_light = topic.startswith(LMQ_PREFIX)
    due = offset
    for message in stored:
        if message.body_crc != raw_crc32(message.body) & CRC_MASK:
            return messages, due, f"its body's CRC is not {message.body_crc}"
        last, singles = message.queue_offset, None
        if message.sys_flag & _NOT_AS_STORED:
            singles = _singles(message)
            last = singles[-1].queue_offset
        is_elsewhere = last < due or message.queue_offset >= end
        is_other = is_elsewhere or message.queue_id != queue_id or message.topic != topic
        if is_other and not is_light:
            count = _fitting(stored, message, offset)
            if count is not None:
                fitting = _taken(stored[:count], topic, queue_id, tags, offset, end)
                return *fitting[:2], f"{_named(stored[count])} came for message {fitting[1]}"
            return messages, due, f"{_named(message)} came for message {due}"
        due = last + 1
        if singles is not None:
            messages += [m for m in singles if m.queue_offset >= offset and is_wanted(m, tags)]
        elif takes_all or is_wanted(message, tags):
            messages.append(message)
    return messages, due, None


def _fitting(stored: list[MessageExt], message: MessageExt, offset: int) -> int | None:
    """Return how many records are before the one that has left out the number of `message`.

    None: the record before `message` has left out none, so that it is `message` which is wrong.
    """
    index = next(i for i, each in enumerate(stored) if each is message)
    if index == 0:
        return None
    low = stored[index - 2].queue_offset + 1 if index > 1 else offset
    return index - 1 if low <= message.queue_offset < stored[index - 1].queue_offset else None


def _named(message: MessageExt) -> str:
    return f"message {message.queue_offset} of queue {message.queue_id} of topic {message.topic!r}"


def _damaged(
    address: str, topic: str, queue_id: int, offset: int, fault: str
) -> MessageDamagedError:
    remark = (
        f"message {offset} of queue {queue_id} of topic {topic!r} is damaged, or one that came in"
        f" its place: {fault}. `tandem ha scrub`, or `tandem log verify` of a classic node, finds"
        " what is bad"
    )
    return MessageDamagedError(ResponseCode.SERVICE_NOT_AVAILABLE, remark, address, offset, -1)


def _singles(message: MessageExt) -> list[MessageExt]:
    """Return the messages of a record, as they were sent.

    A record that holds a whole batch comes whole, also when its middle is asked for. If it does
    not parse it is given out as it is.

    Source: PullAPIWrapper.processPullResult.
    """
    message = decompressed(message)
    try:
        return unwrap_inner_batch(message) or [message]
    except MalformedMessageError:
        return [message]


def is_all(tags: str) -> bool:
    """Whether no message is left out."""
    return tags in (ALL_TAGS, "") and not isinstance(tags, Sql92)


def is_wanted(message: MessageExt, tags: str) -> bool:
    """Whether a message has one of the tags: the broker compares hashes, and the texts are here."""
    if is_all(tags) or isinstance(tags, Sql92):
        return True
    return message.tags in {tag.strip() for tag in tags.split("||")}


def passes_over(result: PullResult, tags: str, offset: int) -> bool:
    """Whether an answer moves a reader on, past messages that nobody has read."""
    return (
        not result.messages
        and result.next_begin_offset > offset
        and (result.status is PullStatus.OFFSET_ILLEGAL or is_all(tags))
    )
