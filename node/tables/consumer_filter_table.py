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

Expressions are not compiled here; filtering by one shows whether it is valid.

Source: RocketMQ 5.3.3, ConsumerFilterManager and ConsumerFilterData.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.wire.bloom_filter import BloomFilter
from tandem.wire.remoting_command import Int32, Int64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.machine.table_file import TableFile

_log = logging.getLogger(__name__)

TAG_EXPRESSION_TYPE: Final = "TAG"
"""Source: ExpressionType.TAG. Such subscriptions need no filter data."""

FILTER_DATA_CLEAN_TIME_SPAN_MS: Final = 24 * 3600 * 1000
"""How long a dead subscription is kept. Source: BrokerConfig.filterDataCleanTimeSpan."""

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


class ConsumerFilterTable:
    """The subscriptions with filters of one broker, and the file they are kept in.

    Every change is in memory until `save`, which the owner calls every few seconds.

    Raises:
        TableFileError: neither the file nor its backup can be read.
    """

    def __init__(
        self,
        file: TableFile,
        wall_clock_ms: Callable[[], int],
        bloom_filter: BloomFilter = BloomFilter(),  # noqa: B008 - immutable
    ) -> None:
        self._file = file
        self._wall_clock_ms = wall_clock_ms
        self._bloom_filter = bloom_filter
        self._changed = False
        self._filters = self._loaded(file.load(_File) or _File())

    def _loaded(self, saved: _File) -> dict[tuple[str, str], ConsumerFilterData]:
        """Return the subscriptions of a file, all of them dead.

        Source: ConsumerFilterManager.decode.
        """
        filters: dict[tuple[str, str], ConsumerFilterData] = {}
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
                    return {}
                dead_time = data.dead_time or max(dead_ms, data.born_time)
                filters[topic, group] = _with_dead_time(data, dead_time)
        return filters

    def _bloom_filter_data(self, group: str, topic: str) -> BloomFilterData:
        positions = self._bloom_filter.positions(f"{group}#{topic}")
        return BloomFilterData(self._bloom_filter.bit_count, list(positions))

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """What the group filters the topic by, dead or alive; None if by nothing but tags."""
        return self._filters.get((topic, group))

    def of_topic(self, topic: str) -> list[ConsumerFilterData]:
        """All that is kept for a topic, dead or alive: what a bit map is calculated for."""
        return [data for (of, _), data in self._filters.items() if of == topic]

    def register(self, group: str, subscriptions: Sequence[SubscriptionFilter]) -> None:
        """Take note of all that a group subscribes to; what is no longer in there is dead.

        Source: ConsumerFilterManager.register(String, Collection).
        """
        for subscription in subscriptions:
            if subscription.expression_type != TAG_EXPRESSION_TYPE and subscription.expression:
                self._register(group, subscription)
        topics = {subscription.topic for subscription in subscriptions}
        self._bury([key for key in self._filters if key[1] == group and key[0] not in topics])

    def _register(self, group: str, subscription: SubscriptionFilter) -> None:
        """Add or change one. A client that is older than another of its group changes nothing.

        Source: FilterDataMapByTopic.register.
        """
        key = subscription.topic, group
        new = self._new(group, subscription)
        old = self._filters.get(key)
        if old is None:
            self._put(key, new)
        elif subscription.version > old.client_version:
            kept = msgspec.structs.replace(old, client_version=subscription.version)
            self._put(key, new if _is_changed(old, new) else _with_dead_time(kept, 0))
        elif subscription.version == old.client_version and old.dead:
            self._put(key, _with_dead_time(old, 0))

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
        self._bury([key for key in self._filters if key[1] == group])

    def _bury(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            if not self._filters[key].dead:
                self._put(key, _with_dead_time(self._filters[key], self._wall_clock_ms()))

    def _put(self, key: tuple[str, str], data: ConsumerFilterData) -> None:
        if self._filters.get(key) != data:
            self._filters[key] = data
            self._changed = True

    def save(self) -> None:
        """Forget what has been dead for 24 hours; write the file if anything changed.

        Source: ConsumerFilterManager.encode and clean.

        Raises:
            StoreFullError: no room. The next call tries again.
            DiskFailedError: the disk refuses otherwise.
        """
        long_ago_ms = self._wall_clock_ms() - FILTER_DATA_CLEAN_TIME_SPAN_MS
        for key, data in list(self._filters.items()):
            if data.dead and data.dead_time <= long_ago_ms:
                del self._filters[key]
                self._changed = True
        if self._changed:
            self._file.save(self._as_file())
            self._changed = False

    def _as_file(self) -> _File:
        by_topic: dict[str, _FilterDataMapByTopic] = {}
        for (topic, group), data in self._filters.items():
            of_topic = by_topic.setdefault(topic, _FilterDataMapByTopic(topic, {}))
            of_topic.group_filter_data[group] = data
        return _File(by_topic)


def _with_dead_time(data: ConsumerFilterData, dead_time: int) -> ConsumerFilterData:
    """Source: ConsumerFilterData.isDead."""
    return msgspec.structs.replace(data, dead_time=dead_time, dead=dead_time >= data.born_time)


def _is_changed(old: ConsumerFilterData, new: ConsumerFilterData) -> bool:
    return (old.expression, old.expression_type, old.bloom_filter_data) != (
        new.expression,
        new.expression_type,
        new.bloom_filter_data,
    )
