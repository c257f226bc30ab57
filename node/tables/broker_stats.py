"""BrokerStats: what has come into a broker and what has gone out; memory only.

    per topic         TOPIC_PUT_NUMS, TOPIC_PUT_SIZE
    per topic@group   GROUP_GET_NUMS, GROUP_GET_SIZE, SNDBCK_PUT_NUMS
    per cluster       BROKER_PUT_NUMS, BROKER_GET_NUMS, and both .._WITHOUT_SYSTEM_TOPIC

Puts are reported every few seconds, all at once: see `store.messages.queue_growth`. So they are
counted on every node, and a new master goes on with what it has seen as a follower. A batch counts
as its messages, where RocketMQ adds to `times` once a batch. Records of a fenced group's journal
are in no total. Gets are counted once a pull.

Topics and groups have names that clients choose, so there is a bound on items: past it, new ones
are not counted until others have been idle.

Source: RocketMQ 5.3.3, BrokerStatsManager, BrokerStats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from node.tables.names import NAME_BYTES_MAX
from node.tables.stats_item import (
    DAY_INTERVAL_MS,
    HOUR_INTERVAL_MS,
    MINUTE_INTERVAL_MS,
    StatsItem,
    TpsHistory,
)
from tandem.wire.stats_requests import BrokerStatsItem
from tandem.wire.system_topics import JOURNAL_TOPIC, is_system_topic

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC: Final = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC: Final = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"

ITEMS_MAX: Final = 65_536
"""Of one name. An item takes about 3 KB when it has lived for a day."""

IDLE_MS: Final = 26 * DAY_INTERVAL_MS
"""After so long nothing of an item can be seen in any window."""

CROWDED_IDLE_MS: Final = 600_000
"""The same where there are too many items; RocketMQ sweeps every 10 minutes."""

_MINUTES_AN_HOUR_TICK: Final = HOUR_INTERVAL_MS // MINUTE_INTERVAL_MS
_MINUTES_A_DAY_TICK: Final = DAY_INTERVAL_MS // MINUTE_INTERVAL_MS

_NOTHING: Final = BrokerStatsItem()


class GroupGets:
    """What one group has got of one topic.

    Attributes:
        pull_offsets: By queue id, the offset after what was handed out last.
    """

    __slots__ = ("is_system", "nums", "pull_offsets", "size")

    def __init__(self, topic: str, now_ms: int) -> None:
        self.is_system = is_system_topic(topic)
        self.nums = StatsItem(now_ms)
        self.size = StatsItem(now_ms)
        self.pull_offsets: dict[int, int] = {}


class Totals(msgspec.Struct, frozen=True):
    """Messages without those of system topics: at the last two midnights, and now."""

    yesterday_morning: int = 0
    today_morning: int = 0
    now: int = 0


class BrokerStats:
    """The statistics of one broker. Time is passed in, in ms since 1970.

    Attributes:
        found: Pulls that were given messages.
        missed: Pulls that were answered without one.
        longest_get_seconds: How long the store took at most to find what a pull asks for, or a run
            of pulls.
        put_bytes: Bytes of all records that came.
        put_tps, found_tps, missed_tps, transferred_tps: Of messages that came, of `found` and
            `missed`, and of messages handed out.
    """

    def __init__(self, cluster: str, local_day: Callable[[int], int], now_ms: int) -> None:
        """`local_day` says which day it is in this node's time zone, as a number."""
        self.found = 0
        self.missed = 0
        self.longest_get_seconds = 0.0
        self.put_bytes = 0
        self._cluster = cluster
        self._local_day = local_day
        self._day = local_day(now_ms)
        self._now_ms = now_ms
        self._ticks = 0
        self._gets: dict[str, GroupGets] = {}
        self._items: dict[str, dict[str, StatsItem]] = {
            name: {} for name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, SNDBCK_PUT_NUMS)
        }
        self._put, self._get, self._put_of_users, self._get_of_users = (
            StatsItem(now_ms) for _ in range(4)
        )
        self._totals = {
            BROKER_PUT_NUMS: self._put,
            BROKER_GET_NUMS: self._get,
            BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC: self._put_of_users,
            BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC: self._get_of_users,
        }
        self._put_mornings = self._get_mornings = (0, 0)
        self.put_tps = TpsHistory()
        self.found_tps = TpsHistory()
        self.missed_tps = TpsHistory()
        self.transferred_tps = TpsHistory()

    # -- counting --------------------------------------------------------------------------------

    def came(self, topic: str, messages: int, record_bytes: int) -> None:
        """Messages have come into a topic since the last call."""
        if topic != JOURNAL_TOPIC:
            self.put_bytes += record_bytes
            self._put.value += messages
        if not is_system_topic(topic):
            self._put_of_users.value += messages
        for name, value in ((TOPIC_PUT_NUMS, messages), (TOPIC_PUT_SIZE, record_bytes)):
            if (item := self._item(name, topic)) is not None:
                item.value += value
                item.times += messages

    def handed_out(
        self,
        group: str,
        topic: str,
        queue_id: int,
        next_offset: int,
        messages: int,
        record_bytes: int,
        pulls: int = 1,
    ) -> None:
        """A pull was given messages, those before `next_offset`. Called once a pull.

        Or `pulls` pulls of one queue, of which the last one was given those messages.
        """
        self.found += pulls
        self._get.value += messages
        gets = self._gets.get(f"{topic}@{group}") or self._new_gets(group, topic)
        if gets is None:
            return
        gets.nums.value += messages
        gets.nums.times += pulls
        gets.size.value += record_bytes
        gets.size.times += pulls
        gets.pull_offsets[queue_id] = next_offset
        if not gets.is_system:
            self._get_of_users.value += messages

    def _new_gets(self, group: str, topic: str) -> GroupGets | None:
        if len(self._gets) >= ITEMS_MAX or len(group) > NAME_BYTES_MAX:
            return None
        gets = self._gets[f"{topic}@{group}"] = GroupGets(topic, self._now_ms)
        return gets

    def sent_back(self, group: str, topic: str) -> None:
        """A consumer of this group gave a message of this topic back."""
        if (item := self._item(SNDBCK_PUT_NUMS, f"{topic}@{group}")) is not None:
            item.value += 1
            item.times += 1

    def _item(self, name: str, key: str) -> StatsItem | None:
        items = self._items[name]
        item = items.get(key)
        if item is None and len(items) < ITEMS_MAX:
            item = items[key] = StatsItem(self._now_ms)
        return item

    # -- time ------------------------------------------------------------------------------------

    def snapshots(self, now_ms: int) -> Iterator[None]:
        """Take the snapshots, one for each step of this; begin it every 10 s.

        The caller may let others have their turn between two steps.
        """
        self._now_ms = now_ms
        hour = self._ticks % _MINUTES_AN_HOUR_TICK == 0
        day = self._ticks % _MINUTES_A_DAY_TICK == 0
        self._ticks += 1
        if hour:
            self._forget_the_idle(now_ms)
        if self._local_day(now_ms) != self._day:
            self._day = self._local_day(now_ms)
            self._put_mornings = self._put_mornings[1], self._put_of_users.value
            self._get_mornings = self._get_mornings[1], self._get_of_users.value
        for history, value in (
            (self.put_tps, self._put.value),
            (self.found_tps, self.found),
            (self.missed_tps, self.missed),
            (self.transferred_tps, self._get.value),
        ):
            history.add(now_ms, value)
        for item in self._all_items():
            item.snapshot(now_ms, hour=hour, day=day)
            yield

    def _all_items(self) -> list[StatsItem]:
        found = list(self._totals.values())
        for items in self._items.values():
            found += items.values()
        for gets in self._gets.values():
            found += gets.nums, gets.size
        return found

    def _forget_the_idle(self, now_ms: int) -> None:
        for items in self._items.values():
            since_ms = now_ms - _idle_ms(len(items))
            for key in [key for key, item in items.items() if item.changed_ms < since_ms]:
                del items[key]
        since_ms = now_ms - _idle_ms(len(self._gets))
        for key in [key for key, gets in self._gets.items() if gets.nums.changed_ms < since_ms]:
            del self._gets[key]

    # -- reading ---------------------------------------------------------------------------------

    def find(self, name: str, key: str) -> StatsItem | None:
        """Return an item by RocketMQ's names, None if there is none."""
        if name in self._totals:
            return self._totals[name] if key == self._cluster else None
        if name in {GROUP_GET_NUMS, GROUP_GET_SIZE}:
            gets = self._gets.get(key)
            if gets is None:
                return None
            return gets.nums if name == GROUP_GET_NUMS else gets.size
        return self._items.get(name, {}).get(key)

    def total(self, name: str) -> StatsItem:
        """Return one of the four items of the whole broker."""
        return self._totals[name]

    def items(self, name: str) -> list[tuple[str, StatsItem]]:
        """Return all items of a name with their keys, but those of the whole broker."""
        if name == GROUP_GET_NUMS:
            return [(key, gets.nums) for key, gets in self._gets.items()]
        if name == GROUP_GET_SIZE:
            return [(key, gets.size) for key, gets in self._gets.items()]
        return list(self._items[name].items())

    def minute_of(self, name: str, key: str) -> BrokerStatsItem:
        """Return the last minute of an item, zeros if there is none."""
        item = self.find(name, key)
        return _NOTHING if item is None else item.minute

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The offset after what a group was handed out last; 0 if nothing was."""
        gets = self._gets.get(f"{topic}@{group}")
        return 0 if gets is None else gets.pull_offsets.get(queue_id, 0)

    @property
    def put_totals(self) -> Totals:
        """Messages that came."""
        return Totals(*self._put_mornings, self._put_of_users.value)

    @property
    def get_totals(self) -> Totals:
        """Messages that were handed out."""
        return Totals(*self._get_mornings, self._get_of_users.value)

    @property
    def put_messages(self) -> int:
        """All messages that came."""
        return self._put.value

    @property
    def got_messages(self) -> int:
        """All messages that were handed out."""
        return self._get.value


def local_day(now_ms: int) -> int:
    """Return a number for the day in this machine's time zone; the next day has the next one."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().toordinal()


def _idle_ms(count: int) -> int:
    return CROWDED_IDLE_MS if count > ITEMS_MAX // 2 else IDLE_MS
