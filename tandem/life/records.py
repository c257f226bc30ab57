"""Copies of one record on several nodes, made one; and what each record of a message is.

ORIGINAL   in its own topic
HALF       RMQ_SYS_TRANS_HALF_TOPIC: of a transaction that had not ended
GIVEN_UP   TRANS_CHECK_MAX_TIME_TOPIC: of one that was never ended
DELAYED    SCHEDULE_TOPIC_XXXX, for the topic in REAL_TOPIC: its own, or a retry topic
TIMER      rmq_sys_wheel_timer: the same, with a time of its own
RETRY      %RETRY%group, and what `tandem.life.pop_retries` describes
DEAD       %DLQ%group
"""

import enum
from collections.abc import Collection, Iterable

import msgspec

from tandem.life.evidence import Copy, Held
from tandem.life.pop_retries import PopRetry, pop_retry_of
from tandem.life.result import Finding, Kind
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import PROPERTY_REAL_TOPIC, PROPERTY_RETRY_TOPIC
from tandem.wire.system_topics import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_TRANS_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)


class Role(enum.Enum):
    """What a record is in the life of its message."""

    ORIGINAL = "original"
    HALF = "half"
    GIVEN_UP = "given up"
    DELAYED = "delayed"
    TIMER = "timer"
    RETRY = "retry"
    DEAD = "dead letter"


_ROLES = {
    RMQ_SYS_TRANS_HALF_TOPIC: Role.HALF,
    TRANS_CHECK_MAX_TIME_TOPIC: Role.GIVEN_UP,
    SCHEDULE_TOPIC: Role.DELAYED,
    TIMER_TOPIC: Role.TIMER,
}


def role_of(topic: str) -> Role:
    """Return what a record in a topic is."""
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return Role.RETRY
    if topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
        return Role.DEAD
    return _ROLES.get(topic, Role.ORIGINAL)


class Record(msgspec.Struct, frozen=True, eq=False):
    """One record, and every copy of it that was seen."""

    message: MessageExt
    copies: list[Copy]
    topics: tuple[str, ...] = ()
    """Which its message may have been sent to, the likeliest first."""

    @property
    def role(self) -> Role:
        """What it is in the life of its message."""
        return role_of(self.message.topic)

    @property
    def real_topic(self) -> str:
        """Where it goes from a topic of the system; else its topic."""
        message = self.message
        if self.role in (Role.HALF, Role.GIVEN_UP, Role.DELAYED, Role.TIMER):
            return message.properties.get(PROPERTY_REAL_TOPIC, "")
        return message.topic

    @property
    def origin_topic(self) -> str:
        """The topic that its message was sent to; "" of a retry that does not say."""
        if not self.group:
            return self.real_topic
        pop_retry = self._pop_retry(self.real_topic)
        if pop_retry is not None:
            return pop_retry.topic
        origin = self.message.properties.get(PROPERTY_RETRY_TOPIC, "")
        # Given up by a group that popped it: its topic was the one where it had come back.
        pop_retry = pop_retry_of(origin, {}, ())
        return origin if pop_retry is None else pop_retry.topic

    def _pop_retry(self, topic: str) -> PopRetry | None:
        return pop_retry_of(topic, self.message.properties, self.topics)

    @property
    def group(self) -> str:
        """The consumer group that it is for, if it is a retry, waits to be one, or is dead."""
        pop_retry = self._pop_retry(self.real_topic)
        if pop_retry is not None:
            return pop_retry.group
        for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
            if self.real_topic.startswith(prefix):
                return self.real_topic[len(prefix) :]
        return ""

    @property
    def is_in_log(self) -> bool:
        """Whether a log has it that counts."""
        return any(copy.held is Held.LOG for copy in self.copies)

    @property
    def broker(self) -> str:
        """Broker name of the group that has it; empty if nobody says so."""
        return next((copy.broker for copy in self.copies if copy.broker), "")

    @property
    def nodes(self) -> list[str]:
        """The nodes in whose log it was seen."""
        return list(dict.fromkeys(c.node for c in self.copies if c.held is Held.LOG))

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.message.physical_offset + self.message.store_size

    @property
    def place(self) -> str:
        """Where it is, in words."""
        message = self.message
        return (
            f"topic {message.topic}, queue {message.queue_id}, queue offset {message.queue_offset}"
        )

    @property
    def sources(self) -> list[str]:
        """What showed it, each once, and the log before the rest."""
        ordered = sorted(self.copies, key=lambda copy: copy.held is not Held.LOG)
        return list(dict.fromkeys(copy.source for copy in ordered))


def records_of(copies: Iterable[Copy], topics: Collection[str] = ()) -> list[Record]:
    """Make one of the copies of a record, in the order of their times.

    `topics` are some that their messages may have been sent to.
    """
    copies = list(copies)
    known: dict[str, list[str]] = {}
    for copy in copies:
        if role_of(copy.message.topic) is Role.ORIGINAL:
            known.setdefault(copy.family, []).append(copy.message.topic)
    others = sorted(topics, key=len, reverse=True)
    found: dict[tuple[object, ...], Record] = {}
    for copy in copies:
        message = copy.message
        key = (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.store_timestamp_ms,
            message.store_host,
            message.body_crc,
        )
        record = found.get(key)
        if record is None:
            likely = tuple(dict.fromkeys([*known.get(copy.family, ()), *others]))
            record = found[key] = Record(message, [], likely)
        if copy not in record.copies:
            record.copies.append(copy)
    return sorted(
        found.values(),
        key=lambda each: (each.message.store_timestamp_ms, each.message.physical_offset),
    )


def about(
    record: Record,
    kind: Kind,
    text: str,
    evidence: list[str],
    *,
    at_ms: int = 0,
    due_ms: int = 0,
    is_concluded: bool = False,
    group: str = "",
    node: str = "",
) -> Finding:
    """Return a finding about a record, with its place."""
    message = record.message
    return Finding(
        kind=kind,
        text=text,
        evidence=evidence,
        at_ms=at_ms,
        due_ms=due_ms,
        is_concluded=is_concluded,
        group=group,
        node=node,
        broker=record.broker,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
    )
