"""What consumer groups filter by, other than tags; RocketMQ's `ConsumerFilterManager`.

A subscription is kept while its consumers are away, because the bit maps of messages stored
meanwhile are calculated for it: it is *dead* then, and forgotten after 24 hours. A dead time that
is not after the born time means alive.

                register                  unregister, or no longer subscribed to, or loaded
    (unknown) ------------> alive -----------------------------------------------> dead
                              ^                    register                          |
                              +------------------------------------------------------+
                                                                   24 h, at a save   v
                                                                                (unknown)

Loading drops the whole file if the bits of one subscription are not those of our Bloom filter: the
bit maps in the store were calculated for another one.

The file is of one node: every node of a group hears the heartbeats of all consumers itself.

Source: RocketMQ 5.3.3, ConsumerFilterManager and ConsumerFilterData.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import trio

from node.filter.message_filter import SQL92, Sql92Filter, compile_filter
from node.filter.sql92_tokens import Sql92Error
from store.machine.errors import StoreError
from store.machine.table_file import TableFile
from store.machine.tell_once import TellOnce
from store.queue.consume_queue_ext import CqExtUnit
from tandem.wire.bloom_filter import BloomFilter
from tandem.wire.remoting_command import Int32, Int64

_log = logging.getLogger(__name__)

TAG_EXPRESSION_TYPE: Final = "TAG"
"""Source: ExpressionType.TAG. Such subscriptions need no filter data."""

FILTER_DATA_CLEAN_TIME_SPAN_MS: Final = 24 * 3600 * 1000
"""How long a dead subscription is kept. Source: BrokerConfig.filterDataCleanTimeSpan."""

SAVE_SECONDS: Final = 10.0
"""Source: BrokerController's task for ConsumerFilterManager.persist."""

FILTERS_MAX: Final = 16_384
FILTER_TERMS_MAX: Final = 100_000
"""Of all expressions that are kept, dead or alive. Any client may send some."""

BIT_MAP_COST_MAX: Final = 2_048
"""Of all expressions that one message is put to as it is stored."""

DEAD_BEFORE_LOAD_MS: Final = 30_000
"""How long ago the consumers of a loaded subscription are taken to have left."""


class BloomFilterData(msgspec.Struct, frozen=True, rename="camel"):
    """The bits that stand for a subscription, and how many there are in a bit map."""

    bit_num: Int32 = 0
    bit_pos: list[Int32] = []


class ConsumerFilterData(msgspec.Struct, frozen=True, rename="camel"):
    """What one group filters one topic by. `dead` follows from the two times."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_time: Int64 = 0
    dead_time: Int64 = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: Int64 = 0
    dead: bool = False


class SubscriptionFilter(msgspec.Struct, frozen=True):
    """One subscription as a heartbeat names it; `version` is the client's clock."""

    topic: str
    expression: str
    expression_type: str
    version: int


class _FilterDataMapByTopic(msgspec.Struct, frozen=True, rename="camel"):
    topic: str = ""
    group_filter_data: dict[str, ConsumerFilterData] = {}


class _File(msgspec.Struct, frozen=True, rename="camel"):
    filter_data_by_topic: dict[str, _FilterDataMapByTopic] = {}


class RegisteredFilter:
    """What one group filters one topic by, compiled: a `MessageFilter` of the store.

    A bit map counts if its record came into the log when this filter was there, by the place of the
    record. RocketMQ compares the times of two machines for that.

    Attributes:
        data: As it is in the file.
        compiled: The expression.
        uses_bit_maps: Whether bit maps are calculated at all.
    """

    __slots__ = ("_bloom_filter", "_from", "_positions", "compiled", "data", "uses_bit_maps")

    def __init__(
        self,
        data: ConsumerFilterData,
        compiled: Sql92Filter,
        bloom_filter: BloomFilter,
        log_end: int,
        *,
        uses_bit_maps: bool,
    ) -> None:
        self.data = data
        self.compiled = compiled
        self.uses_bit_maps = uses_bit_maps
        self._bloom_filter = bloom_filter
        self._positions = bloom_filter.positions(f"{data.consumer_group}#{data.topic}")
        self._from = log_end

    @property
    def cost(self) -> int:
        """See `Sql92Filter`."""
        return self.compiled.cost

    @property
    def positions(self) -> tuple[int, ...]:
        """Its bits in a bit map."""
        return self._positions

    def may_match(self, at: int, unit: CqExtUnit) -> bool:
        """False if the bit map was calculated with this filter, and says no.

        Source: ExpressionMessageFilter.isMatchedByConsumeQueue.
        """
        return at < self._from or self._bloom_filter.is_hit(unit.filter_bit_map, self._positions)

    def matches(self, properties: bytes) -> bool:
        """See `Sql92Filter`."""
        return self.compiled.matches(properties)


class ConsumerFilterTable:
    """The subscriptions with filters of one broker, and the file they are kept in.

    Every change is in memory until `save`, which the owner calls every few seconds.

    Args:
        file: of this node alone.
        wall_clock_ms: for the times in the file.
        bloom_filter: whose bits stand for a subscription.
        log_end: where the next record of the log will be.
        uses_bit_maps: whether the store keeps what `bit_map` calculates.

    Raises:
        TableFileError: neither the file nor its backup can be read.
    """

    def __init__(
        self,
        file: TableFile,
        wall_clock_ms: Callable[[], int],
        bloom_filter: BloomFilter = BloomFilter(),  # noqa: B008 - immutable
        *,
        log_end: Callable[[], int] = lambda: 0,
        uses_bit_maps: bool = False,
    ) -> None:
        self._file = file
        self._wall_clock_ms = wall_clock_ms
        self._bloom_filter = bloom_filter
        self._log_end = log_end
        self._uses_bit_maps = uses_bit_maps
        self._by_topic: dict[str, dict[str, RegisteredFilter]] = {}
        self._by_group: dict[str, dict[str, RegisteredFilter]] = {}
        self._count = self._dead_count = self._terms = 0
        self._told: TellOnce[str] = TellOnce()
        for data in self._loaded(file.load(_File) or _File()):
            self._put(data)
        self._changed = False

    def _loaded(self, saved: _File) -> list[ConsumerFilterData]:
        """Return the subscriptions of a file, all of them dead.

        Source: ConsumerFilterManager.decode.
        """
        filters: list[ConsumerFilterData] = []
        dead_ms = self._wall_clock_ms() - DEAD_BEFORE_LOAD_MS
        for topic, of_topic in saved.filter_data_by_topic.items():
            for group, data in of_topic.group_filter_data.items():
                if data.bloom_filter_data != self._bloom_filter_data(group, topic):
                    _log.warning(
                        "filter data of %s for %s is for another Bloom filter: all of it is"
                        " dropped, and comes back with the consumers",
                        group,
                        topic,
                    )
                    return []
                named = msgspec.structs.replace(data, consumer_group=group, topic=topic)
                dead_time = data.dead_time or max(dead_ms, data.born_time)
                filters.append(_with_dead_time(named, dead_time))
        return filters

    def _bloom_filter_data(self, group: str, topic: str) -> BloomFilterData:
        positions = self._bloom_filter.positions(f"{group}#{topic}")
        return BloomFilterData(self._bloom_filter.bit_count, list(positions))

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """What the group filters the topic by, dead or alive; None if by nothing but tags."""
        found = self.filter_of(topic, group)
        return None if found is None else found.data

    def filter_of(self, topic: str, group: str) -> RegisteredFilter | None:
        """The same, compiled."""
        return self._by_topic.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> list[ConsumerFilterData]:
        """All that is kept for a topic, dead or alive: what a bit map is calculated for."""
        return [found.data for found in self._by_topic.get(topic, {}).values()]

    def bit_map(self, topic: str, properties: bytes) -> bytes:
        """Calculate the bit map of a message; empty if nobody filters its topic.

        What would cost too much is not put to the message, and its bits are set: it may match.

        Source: CommitLogDispatcherCalcBitMap.dispatch.
        """
        filters = self._by_topic.get(topic)
        if not filters:
            return b""
        left = BIT_MAP_COST_MAX
        hits = []
        for found in filters.values():
            left -= found.cost
            if left < 0 or found.matches(properties):
                hits.append(found.positions)
        return self._bloom_filter.bit_map(hits)

    def register(self, group: str, subscriptions: Sequence[SubscriptionFilter]) -> None:
        """Take note of all that a group subscribes to; what is no longer in there is dead.

        Source: ConsumerFilterManager.register(String, Collection).
        """
        for subscription in subscriptions:
            if subscription.expression_type != TAG_EXPRESSION_TYPE and subscription.expression:
                self._register(group, subscription)
        if group in self._by_group:
            topics = {subscription.topic for subscription in subscriptions}
            self._bury(group, self._by_group[group].keys() - topics)

    def _register(self, group: str, subscription: SubscriptionFilter) -> None:
        """Add or change one. A client that is older than another of its group changes nothing.

        An expression that cannot be compiled is not taken, and removes the one before it: pulls
        then say that there is none.

        Source: FilterDataMapByTopic.register.
        """
        old = self.get(subscription.topic, group)
        if old is None:
            self._put(self._new(group, subscription))
        elif subscription.version > old.client_version:
            new = self._new(group, subscription)
            if _is_changed(old, new):
                self._remove(subscription.topic, group)
                self._put(new)
            else:
                kept = msgspec.structs.replace(old, client_version=subscription.version)
                self._replace(_with_dead_time(kept, 0))
        elif subscription.version == old.client_version and old.dead:
            self._replace(_with_dead_time(old, 0))

    def _new(self, group: str, subscription: SubscriptionFilter) -> ConsumerFilterData:
        return ConsumerFilterData(
            consumer_group=group,
            topic=subscription.topic,
            expression=subscription.expression,
            expression_type=subscription.expression_type,
            born_time=self._wall_clock_ms(),
            bloom_filter_data=self._bloom_filter_data(group, subscription.topic),
            client_version=subscription.version,
        )

    def unregister(self, group: str) -> None:
        """Take note that the last consumer of a group has left.

        Source: ConsumerFilterManager.unRegister.
        """
        self._bury(group, set(self._by_group.get(group, ())))

    def _bury(self, group: str, topics: set[str]) -> None:
        for topic in topics:
            data = self._by_group[group][topic].data
            if not data.dead:
                self._replace(_with_dead_time(data, self._wall_clock_ms()))

    def _put(self, data: ConsumerFilterData) -> None:
        """Take one in, if it can be compiled and there is room."""
        try:
            compiled = _compiled(data)
        except Sql92Error as error:
            self._tell(data, str(error))
            return
        self._make_room(compiled.cost)
        if self._is_full(compiled.cost):
            self._tell(data, "there are too many filters")
            return
        found = RegisteredFilter(
            data,
            compiled,
            self._bloom_filter,
            self._log_end(),
            uses_bit_maps=self._uses_bit_maps,
        )
        self._by_topic.setdefault(data.topic, {})[data.consumer_group] = found
        self._by_group.setdefault(data.consumer_group, {})[data.topic] = found
        self._count += 1
        self._dead_count += data.dead
        self._terms += compiled.cost
        self._changed = True

    def _replace(self, data: ConsumerFilterData) -> None:
        """Note other times or versions of one that is there."""
        found = self._by_group[data.consumer_group][data.topic]
        if found.data != data:
            self._dead_count += data.dead - found.data.dead
            found.data = data
            self._changed = True

    def _remove(self, topic: str, group: str) -> None:
        found = self._by_topic[topic].pop(group)
        del self._by_group[group][topic]
        for index, key in ((self._by_topic, topic), (self._by_group, group)):
            if not index[key]:
                del index[key]
        self._count -= 1
        self._dead_count -= found.data.dead
        self._terms -= found.cost
        self._changed = True

    def _is_full(self, cost: int) -> bool:
        return self._count >= FILTERS_MAX or self._terms + cost > FILTER_TERMS_MAX

    def _make_room(self, cost: int) -> None:
        """Forget the dead where it gets tight: bit maps are all that they are kept for."""
        if self._dead_count and self._is_full(cost):
            self._forget_dead(before_ms=self._wall_clock_ms())

    def _forget_dead(self, before_ms: int) -> None:
        of_all = [found for of_topic in self._by_topic.values() for found in of_topic.values()]
        for found in of_all:
            if found.data.dead and found.data.dead_time <= before_ms:
                self._remove(found.data.topic, found.data.consumer_group)

    def _tell(self, data: ConsumerFilterData, why: str) -> None:
        group, topic = data.consumer_group, data.topic
        if not self._told.is_full and self._told.is_news(why, about=(group, topic)):
            _log.warning("the filter of group %r for topic %r is not taken: %s", group, topic, why)

    async def run(self) -> None:
        """Save every few seconds, until cancelled."""
        while True:
            await trio.sleep(SAVE_SECONDS)
            self.save_or_tell()

    def save_or_tell(self) -> None:
        """Save; what cannot be written comes back with the consumers, and is only logged."""
        try:
            self.save()
        except StoreError as error:
            if self._told.is_news(str(error)):
                _log.warning("filters of consumers could not be saved: %s", error)
        else:
            self._told.over()

    def save(self) -> None:
        """Forget what has been dead for 24 hours; write the file if anything changed.

        Source: ConsumerFilterManager.encode and clean.

        Raises:
            StoreFullError: no room. The next call tries again.
            DiskFailedError: the disk refuses otherwise.
        """
        if self._dead_count:
            self._forget_dead(before_ms=self._wall_clock_ms() - FILTER_DATA_CLEAN_TIME_SPAN_MS)
        if self._changed:
            self._file.save(self._as_file())
            self._changed = False

    def _as_file(self) -> _File:
        by_topic: dict[str, _FilterDataMapByTopic] = {}
        for topic, filters in self._by_topic.items():
            of_topic = {group: found.data for group, found in filters.items()}
            by_topic[topic] = _FilterDataMapByTopic(topic, of_topic)
        return _File(by_topic)


def _compiled(data: ConsumerFilterData) -> Sql92Filter:
    if data.expression_type != SQL92:
        kind = data.expression_type[:80]
        raise Sql92Error(f"there is no filter of type {kind}; there are TAG and SQL92")
    return compile_filter(data.expression)


def _with_dead_time(data: ConsumerFilterData, dead_time: int) -> ConsumerFilterData:
    """Source: ConsumerFilterData.isDead."""
    return msgspec.structs.replace(data, dead_time=dead_time, dead=dead_time >= data.born_time)


def _is_changed(old: ConsumerFilterData, new: ConsumerFilterData) -> bool:
    return (old.expression, old.expression_type, old.bloom_filter_data) != (
        new.expression,
        new.expression_type,
        new.bloom_filter_data,
    )
