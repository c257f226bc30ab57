"""Offsets of queues as JSON, the same in options and in checkpoints.

    {"orders": {"broker-a": {"0": 23, "1": 5}}}

It says how many messages of a queue are before that place. In an option -2 stands for the
earliest message and -1 for the end, as in Kafka's. The form is that of the RocketMQ connector.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from tandem.client.results import MessageQueue
from tandem.spark.commitlog.offsets import EARLIEST
from tandem.spark.errors import SparkSourceError
from tandem.wire.untrusted import UnreadableError, convert, decode_json

Offsets: TypeAlias = dict[MessageQueue, int]
"""Where a reader is in each queue: the offset of the next message."""

_QueueId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_AnyOffset = Annotated[int, msgspec.Meta(ge=EARLIEST, le=2**63 - 1)]
_Place = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

_OPTION: Final = dict[str, dict[str, dict[_QueueId, _AnyOffset]]]
_CHECKPOINT: Final = dict[str, dict[str, dict[_QueueId, _Place]]]

STARTED_AT: Final = "started at"
"""A key beside the topics. No topic has a blank in its name.

Spark keeps the end of a batch and not its beginning. The first batch of a stream may have to be
made again by another process, when "latest" means another place. So the end of the first batch
says where the stream began.
"""


OLDEST_UNREAD: Final = "oldest unread"
"""A key beside the topics of what a stream reports as the latest offsets: when the oldest message
was stored that is not read yet, in ms since 1970. It is in no checkpoint."""


class StreamOffset(msgspec.Struct, frozen=True):
    """What a checkpoint holds of a stream: where it is, and of its first batch where it began."""

    places: Offsets
    started_at: Offsets | None = None
    is_initial: bool = False

    def as_json(self) -> dict[str, object]:
        """Return what Spark keeps: the same offset is always the same text."""
        found: dict[str, object] = dict(nested(self.places))
        if self.is_initial:
            found[STARTED_AT] = {}
        elif self.started_at is not None:
            found[STARTED_AT] = nested(self.started_at)
        return found


def stream_offset(value: Mapping[str, object]) -> StreamOffset:
    """Return what `StreamOffset.as_json` wrote.

    Raises:
        SparkSourceError: it is something else, such as the checkpoint of another source.
    """
    topics = dict(value)
    started_at = topics.pop(STARTED_AT, None)
    try:
        places = flat(convert(topics, _CHECKPOINT, strict=False))
        if started_at is None:
            return StreamOffset(places)
        if started_at == {}:
            return StreamOffset(places, is_initial=True)
        return StreamOffset(places, flat(convert(started_at, _CHECKPOINT, strict=False)))
    except UnreadableError as error:
        raise SparkSourceError(
            f"source tandem: the checkpoint holds no offsets of this source ({error}); is it that"
            " of another query?"
        ) from error


def offsets_of_option(text: str) -> Offsets:
    """Return the offsets that a user wrote.

    Raises:
        UnreadableError: it is something else.
    """
    return flat(decode_json(text, _OPTION))


def nested(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return offsets by topic, broker name and queue id, sorted."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return found


def flat(topics: Mapping[str, Mapping[str, Mapping[int, int]]]) -> Offsets:
    """Return nested offsets by queue."""
    return {
        MessageQueue(topic, broker_name, queue_id): offset
        for topic, brokers in topics.items()
        for broker_name, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def names(queues: Iterable[MessageQueue], shown: int = 5) -> str:
    """Return the names of queues for an error, the first few of them."""
    every = [f"{each.topic} {each.broker_name} {each.queue_id}" for each in sorted(queues)]
    more = f" and {len(every) - shown} more" if len(every) > shown else ""
    return ", ".join(every[:shown]) + more
