"""Maps by queue, as Java writes them: their keys are objects, which no reader of JSON takes.

    {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:{"maxOffset":10,..}}}

`by_queue` makes texts of such keys, and reads the rest as any body.

Source: RocketMQ 5.3.3, remoting.protocol.admin and .body; recorded answers.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from tandem.wire.errors import MalformedFrameError
from tandem.wire.remoting_command import Int64
from tandem.wire.request_headers import Body, MessageQueueBody
from tandem.wire.route import BodyT, decode_json_body
from tandem.wire.stats_requests import OffsetWrapper, TopicOffset

ValueT = TypeVar("ValueT")

# An object without others in it, before a colon; or a string, which is left alone.
_STRING_OR_KEY: Final = re.compile(
    rb'(?s)"(?:[^"\\]|\\.)*"|(\{(?:[^{}"\\]|"(?:[^"\\]|\\.)*")*\})(\s*:)'
)


class TopicOffsets(Body, frozen=True):
    """Body of the answer to GET_TOPIC_STATS_INFO, with texts for queues."""

    offset_table: dict[str, TopicOffset] = msgspec.field(default_factory=dict)


class ConsumeOffsets(Body, frozen=True):
    """Body of the answer to GET_CONSUME_STATS, with texts for queues."""

    consume_tps: float = 0.0
    offset_table: dict[str, OffsetWrapper] = msgspec.field(default_factory=dict)


class ResetOffsets(Body, frozen=True):
    """Body of the answer to INVOKE_BROKER_TO_RESET_OFFSET, with texts for queues."""

    offset_table: dict[str, Int64] = msgspec.field(default_factory=dict)


class QueueProgress(Body, frozen=True):
    """How far a client is in one queue. RocketMQ's ProcessQueueInfo, in parts."""

    commit_offset: Int64 = 0
    cached_msg_count: int = 0
    locked: bool = False


class RunningInfo(Body, frozen=True):
    """Body of the answer to GET_CONSUMER_RUNNING_INFO, with texts for queues."""

    mq_table: dict[str, QueueProgress] = msgspec.field(default_factory=dict)
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class GroupsOffsets(Body, frozen=True):
    """Body of the answer to GET_BROKER_CONSUME_STATS, with texts for queues."""

    consume_stats_list: list[dict[str, list[ConsumeOffsets]]] = msgspec.field(default_factory=list)


def decode_body_by_queue(body: bytes, body_type: type[BodyT]) -> BodyT:
    """Return the record in a body that has queues for keys; they are texts in it.

    Raises:
        MalformedFrameError: it is not such a record.
    """
    return decode_json_body(_STRING_OR_KEY.sub(_as_text, body), body_type)


def by_queue(table: Mapping[str, ValueT]) -> list[tuple[MessageQueueBody, ValueT]]:
    """Return the entries of a table of such a record, sorted by topic, broker name and queue.

    Raises:
        MalformedFrameError: a key is no queue.
    """
    entries = [
        (decode_json_body(key.encode(), MessageQueueBody), value) for key, value in table.items()
    ]
    return sorted(
        entries, key=lambda entry: (entry[0].topic, entry[0].broker_name, entry[0].queue_id)
    )


def _as_text(found: re.Match[bytes]) -> bytes:
    if found[1] is None:
        return found[0]
    try:
        text = found[1].decode()
    except UnicodeDecodeError as error:
        raise MalformedFrameError(f"a queue is no UTF-8: {error}") from error
    return msgspec.json.encode(text) + found[2]
