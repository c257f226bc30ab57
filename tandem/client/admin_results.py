"""What an administrator gets: topics, groups and messages, over all brokers. Plain records.

Times are in milliseconds since 1970; None is unknown, or never.
"""

import enum

import msgspec

from tandem.wire.lag import total_lag
from tandem.wire.message import MessageExt


class TopicQueue(msgspec.Struct, frozen=True):
    """One queue of a topic. `min_offset` is its first message, `max_offset` the next one to be."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_store_timestamp_ms: int | None = None

    @property
    def message_count(self) -> int:
        """How many messages it holds."""
        return self.max_offset - self.min_offset


class TopicAtBroker(msgspec.Struct, frozen=True, kw_only=True):
    """How a topic is set up at one broker name. `perm` bits: 4 read, 2 write."""

    broker_name: str
    addresses: dict[int, str]
    """Broker id to address; 0 is the master."""
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order: bool = False
    attributes: dict[str, str] = {}


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic at all brokers. `groups` have read it, or read it now."""

    topic: str
    brokers: list[TopicAtBroker]
    queues: list[TopicQueue]
    groups: list[str] = []

    @property
    def message_count(self) -> int:
        """How many messages all its queues hold."""
        return sum(queue.message_count for queue in self.queues)


class GroupSummary(msgspec.Struct, frozen=True):
    """A consumer group in a list. `lag` counts messages, over all topics.

    It is below 0 if the group is past the ends of queues, and behind nowhere.
    """

    group: str
    members_count: int
    topics: list[str]
    lag: int


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A client of a group. `version` is RocketMQ's number for it, as text."""

    client_id: str
    address: str
    language: str
    version: str
    queues_count: int | None = None
    """How many queues it reads; None if it does not say."""


class GroupQueue(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in one queue.

    `consumer_offset` is the next message to be consumed, `pull_offset` the next to be fetched,
    `broker_offset` the next to be stored.
    """

    topic: str
    broker_name: str
    queue_id: int
    consumer_offset: int
    pull_offset: int
    broker_offset: int
    last_consumed_timestamp_ms: int | None = None
    """When the last message that was consumed had been stored."""
    client_id: str = ""
    """Who reads it; empty if nobody says so."""

    @property
    def lag(self) -> int:
        """How many messages are not consumed yet; below 0 if the group is past the end."""
        return self.broker_offset - self.consumer_offset

    @property
    def inflight(self) -> int:
        """How many of them are fetched already."""
        return max(0, self.pull_offset - self.consumer_offset)


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group at all brokers."""

    group: str
    members: list[GroupMember]
    queues: list[GroupQueue]
    message_model: str = ""
    """CLUSTERING or BROADCASTING; empty if no member is online."""
    consume_type: str = ""
    subscriptions: dict[str, str] = {}
    """What the members want, by topic."""

    @property
    def lag(self) -> int:
        """How many messages are not consumed yet.

        Below 0 if the group is past the ends of queues, and behind nowhere.
        """
        return total_lag(queue.lag for queue in self.queues)


class OffsetChange(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group goes on in one queue, before and after a reset."""

    topic: str
    broker_name: str
    queue_id: int
    old_offset: int | None
    """None if it has none."""
    new_offset: int
    min_offset: int
    max_offset: int


class ResetPlan(msgspec.Struct, frozen=True):
    """What a reset will change. `members_count`: clients of the group that are online."""

    group: str
    members_count: int
    changes: list[OffsetChange]


class ResetWay(enum.Enum):
    """How offsets were changed."""

    BROKER = "broker"
    """By the broker (INVOKE_BROKER_TO_RESET_OFFSET), which tells members that are online."""
    COMMIT = "commit"
    """Committed as by a consumer: for brokers that tell members themselves, and find none."""


class FoundMessage(msgspec.Struct, frozen=True):
    """A message, and the name of the broker that has it."""

    broker_name: str
    message: MessageExt


class MessagePage(msgspec.Struct, frozen=True):
    """Some messages in the order of time, and whether those are all, for now."""

    messages: list[FoundMessage]
    is_whole: bool


class FateAt(msgspec.Struct, frozen=True, kw_only=True):
    """One place of a message on its way: itself, a retry, or a dead letter."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    store_timestamp_ms: int
    reconsume_times: int
    offset_msg_id: str


class GroupFate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message in one consumer group."""

    group: str
    state: str
    """`consumed`, `not yet consumed`, `to be delivered again`, or `dead letter`."""
    times: int
    """How often it was delivered, as far as is known."""
    places: list[FateAt] = []
    """Its retries and its dead letter, in the order of time."""


class MessageTrace(msgspec.Struct, frozen=True):
    """A message, and what became of it in every group that reads its topic."""

    message: MessageExt
    groups: list[GroupFate]


class ClientTraceEvent(enum.Enum):
    """What a client has said in a trace."""

    SENT = "sent"
    STORED = "stored, not confirmed"
    """The broker's answer was not SEND_OK: it has the message, and does not say that it is safe."""
    SEND_FAILED = "send failed"
    """Or its outcome is not known to the producer."""
    HANDED_OUT = "handed out"
    """To a consumer, which has said nothing more: it is at it, or ended before."""
    CONSUMED = "consumed"
    GIVEN_BACK = "given back"
    """To be delivered again, or to become a dead letter."""
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    LEFT_UNKNOWN = "left unknown"


class ClientTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a client has said of a message, by its own clock."""

    event: ClientTraceEvent
    time_ms: int
    """When it began."""
    group: str
    cost_ms: int | None = None
    store_host: str = ""
    retry_times: int = 0
    detail: str = ""
    """The type of a message that was sent; how consuming ended."""
