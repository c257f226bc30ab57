"""What the answer to a pull says: a status, where to go on, and single messages. Pure.

Source: RocketMQ 5.3.3, PullAPIWrapper.processPullResult, MQClientAPIImpl.processPullResponse.
"""

from typing import Final

from tandem.client.compression import decompressed
from tandem.client.errors import ConnectionLostError
from tandem.client.queue_flow import decode, refusal_in
from tandem.client.results import PullResult, PullStatus
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAGS,
    MessageExt,
    is_inner_batch,
    unwrap_inner_batch,
)
from tandem.wire.pulled_records import decode_pulled
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import PullMessageResponseHeader
from tandem.wire.response_code import ResponseCode

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
        ValueError: both are given.
    """
    if sql is None:
        return tags
    if not is_all(tags):
        raise ValueError("tags and an SQL92 expression cannot be given both; say TAGS = 'a' in it")
    return Sql92(sql)


def expression_type(tags: str) -> str:
    """Return in which language `tags` is, as a pull says it.

    Source: RocketMQ 5.3.3, ExpressionType.
    """
    return "SQL92" if isinstance(tags, Sql92) else "TAG"


def pull_result(answer: RemotingCommand, address: str, tags: str, offset: int) -> PullResult:
    """Return what a pull of `tags` from `offset` on has found.

    Raises:
        BrokerError: it is a refusal; MessageDamagedError if the next message is damaged there.
        ConnectionLostError: it does not parse.
        CompressedBodyError: a body that this client cannot read.
    """
    status = PULL_STATUSES.get(answer.code)
    if status is None:
        raise refusal_in(answer, address)
    header = decode(answer, PullMessageResponseHeader, address)
    try:
        stored = decode_pulled(answer.body)
    except MalformedMessageError as error:
        raise ConnectionLostError(address, f"the answer does not parse: {error}") from error
    messages: list[MessageExt] = []
    takes_all = is_all(tags)
    for message in stored:
        if takes_all and not message.sys_flag & _NOT_AS_STORED:
            messages.append(message)
        else:
            messages += _singles(message, tags, offset)
    if status is PullStatus.FOUND and not messages:
        status = PullStatus.NO_MATCHED_MSG
    return PullResult(
        status, header.next_begin_offset, header.min_offset, header.max_offset, messages
    )


def _singles(message: MessageExt, tags: str, offset: int) -> list[MessageExt]:
    """Return the messages of a record from queue offset `offset` on that have one of the tags.

    A record that holds a whole batch comes whole, also when its middle is asked for. If it does
    not parse it is given out as it is.

    Source: PullAPIWrapper.processPullResult.
    """
    if not is_inner_batch(message.sys_flag):
        return [decompressed(message)] if _has_tag(message, tags) else []
    message = decompressed(message)
    try:
        singles = unwrap_inner_batch(message)
    except MalformedMessageError:
        return [message]
    return [m for m in singles if m.queue_offset >= offset and _has_tag(m, tags)]


def is_all(tags: str) -> bool:
    """Whether no message is left out."""
    return tags in (ALL_TAGS, "") and not isinstance(tags, Sql92)


def _has_tag(message: MessageExt, tags: str) -> bool:
    """The broker compares hashes; the texts have to be compared here."""
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
