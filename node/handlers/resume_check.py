"""RESUME_CHECK_HALF_MESSAGE: a half that was given up is asked about again.

    half --asked 15 times, no answer--> TRANS_CHECK_MAX_TIME_TOPIC
    resume, with its offset id      --> a half again, at the end of the queue, never asked about

A record is resumed once: two halves of one transaction would be two messages. If the half is given
up once more, there is a newer record, which may be resumed in its turn. RocketMQ makes a half of
any record, as often as it is asked.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.resumeCheckHalfMessage.
"""

from __future__ import annotations

import logging
from typing import Final

from node.errors import RequestError
from node.handlers.found_record import check_found
from node.handlers.send_message import SendMessage
from node.remoting.connection import Connection
from node.security.access import Action, Resource
from node.security.request import of_found_topic, of_topic, serves
from store import MessageStore
from store.transaction.half_message import identity_of, resumed_half
from tandem.wire.access_control import Right
from tandem.wire.admin_headers import ResumeCheckHalfMessageRequestHeader
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import MessageExt, decode_messages, decode_offset_msg_id
from tandem.wire.message_properties import PROPERTY_REAL_TOPIC, PROPERTY_UNIQUE_KEY
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import RMQ_SYS_TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC

_log = logging.getLogger(__name__)

_COPIES_MAX: Final = 64
"""Of one half that are looked at, the newest ones."""

_LAST_MAX: Final = 1_000


class ResumeCheck:
    """Serves operators who have mended a producer."""

    def __init__(self, store: MessageStore, send: SendMessage) -> None:
        self._store = store
        self._send = send
        self._last: dict[int, int] = {}
        """Of what was resumed last: its offset -> that of its half. Reads show it when it is
        confirmed."""

    @serves(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        (Resource.SYSTEM_TOPICS, Action.WRITE),
        of_topic("topic", Right.UPDATE),
        of_found_topic(Right.UPDATE),
        header=ResumeCheckHalfMessageRequestHeader,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """RESUME_CHECK_HALF_MESSAGE. What was given up stays where people look."""
        header = command.decode_header(ResumeCheckHalfMessageRequestHeader)
        self._send.check_takes_puts()
        given_up = self._given_up(connection, header.msg_id)
        if (place := self._resumed_at(given_up)) is not None:
            raise _refused(f"it was resumed before: its half is at {place} of the log")
        result = self._store.puts.put_message(resumed_half(given_up), hooks=False)
        if not result.status.is_stored:
            return self._send.not_stored(command, result)
        self._last[given_up.physical_offset] = result.wrote_offset
        if len(self._last) > _LAST_MAX:
            del self._last[next(iter(self._last))]
        _log.warning(
            "%s has the half at %d (topic %s, key %s) asked about again",
            connection.peer,
            given_up.physical_offset,
            given_up.properties.get(PROPERTY_REAL_TOPIC),
            given_up.properties.get(PROPERTY_UNIQUE_KEY),
        )
        return self._send.answer_when_stored(connection, command, result.end_offset)

    def _given_up(self, connection: Connection, msg_id: str | None) -> MessageExt:
        try:
            _, offset = decode_offset_msg_id(msg_id or "")
        except (MalformedMessageError, ValueError) as error:
            raise _refused(f"{msg_id!r:.100} is no offset id") from error
        record = self._store.reads.look_message_by_offset(offset)
        if record is None:
            raise _refused(f"there is no message at {offset}")
        check_found(connection.caller, record, Right.UPDATE)
        connection.note_read(len(record))
        message = decode_messages(record)[0]
        if message.topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise _refused(
                f"the message at {offset} is in topic {message.topic}: what was given up is in"
                f" {TRANS_CHECK_MAX_TIME_TOPIC}"
            )
        return message

    def _resumed_at(self, given_up: MessageExt) -> int | None:
        """Return the offset of a half that was made of this record, as far as there is an index."""
        if (last := self._last.get(given_up.physical_offset)) is not None:
            return last
        found = self._store.reads.query_message(
            RMQ_SYS_TRANS_HALF_TOPIC,
            given_up.properties.get(PROPERTY_UNIQUE_KEY, ""),
            _COPIES_MAX,
            given_up.store_timestamp_ms,
        )
        later = [
            half.physical_offset
            for record in found.records
            for half in decode_messages(record)
            if half.physical_offset > given_up.physical_offset
            and identity_of(half) == identity_of(given_up)
        ]
        return min(later, default=None)


def _refused(why: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, why)
