"""How far each consumer group has got in each queue; RocketMQ's `ConsumerOffsetManager`.

An offset is the next queue offset to consume. It may move backwards: a person who resets a group
does just that. Nothing here is on the path of a message, so a lost table means messages delivered
twice, never messages lost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Final

from node.tables.names import check_name
from node.tables.offset_room import OffsetRoom
from store.machine.table_file import TableFile, next_version
from tandem.wire.request_headers import ConsumerOffsetTableBody
from tandem.wire.route import decode_json_body, encode_json_body

TOPIC_GROUP_SEPARATOR: Final = "@"

COMMITS_PER_VERSION: Final = 500
"""Commits that share one data version. Source: BrokerConfig.consumerOffsetUpdateVersionStep."""

KEYS_PER_STEP: Final = 4_096
"""Of a save in steps: some milliseconds of work."""


class ConsumerOffsetTable:
    """The offsets of one broker, and the file they are kept in.

    Every change is in memory until `save`, which the owner calls every few seconds.
    """

    def __init__(self, file: TableFile, wall_clock_ms: Callable[[], int]) -> None:
        self._file = file
        self._wall_clock_ms = wall_clock_ms
        saved = file.load(ConsumerOffsetTableBody) or ConsumerOffsetTableBody({})
        self._version = saved.data_version
        self._offsets = saved.offset_table
        self._commits = 0
        self._changes = 0
        self._saved_changes = 0
        self._room: OffsetRoom | None = None
        """None until it is needed, as offsets may come from elsewhere."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember an offset. A negative one means "nothing consumed yet" and is ignored.

        Raises:
            RequestError: The group's name is too long, or the table is full; nothing is changed.
        """
        if offset < 0:
            return
        key = f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
        queues = self._offsets.get(key, {})
        known = queues.get(queue_id)
        if known is None:
            self._take_room(group, key)
            self._offsets[key] = queues
        if known != offset:
            queues[queue_id] = offset
            self._changes += 1
        self._commits += 1
        if self._commits % COMMITS_PER_VERSION == 0:
            self._version = next_version(self._version, self._wall_clock_ms())

    def _take_room(self, group: str, key: str) -> None:
        check_name("consumer group", group)
        if self._room is None:
            self._room = OffsetRoom(self._offsets)
        self._room.take(key, is_new_key=key not in self._offsets)

    def replace(self, offsets: dict[str, dict[int, int]]) -> None:
        """Have these offsets and no others, by `topic@group` and queue id."""
        self._offsets = {key: dict(queues) for key, queues in offsets.items()}
        self._room = None
        self._version = next_version(self._version, self._wall_clock_ms())
        self._changes += 1

    def adopt(self, offsets: dict[str, dict[int, int]]) -> None:
        """Take over offsets that were decided on elsewhere, by `topic@group` and queue id."""
        for key, queues in offsets.items():
            self._offsets.setdefault(key, {}).update(queues)
        self._room = None
        self._version = next_version(self._version, self._wall_clock_ms())
        self._changes += 1

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget how far all groups are in a topic, or how far a group is in all topics."""
        gone = [key for key in self._offsets if is_offset_of(key, topic=topic, group=group)]
        for key in gone:
            del self._offsets[key]
        if gone:
            self._room = None
            self._version = next_version(self._version, self._wall_clock_ms())
            self._changes += 1

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has committed an offset."""
        end = f"{TOPIC_GROUP_SEPARATOR}{group}"
        return [key.removesuffix(end) for key in self._offsets if is_offset_of(key, group=group)]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have committed an offset in a topic."""
        start = f"{topic}{TOPIC_GROUP_SEPARATOR}"
        return [key.removeprefix(start) for key in self._offsets if is_offset_of(key, topic=topic)]

    def offsets(self) -> dict[str, dict[int, int]]:
        """A copy of the whole table, by `topic@group` and queue id."""
        return {key: dict(queues) for key, queues in self._offsets.items()}

    def views(self) -> Iterator[tuple[str, dict[int, int]]]:
        """Each `topic@group` with its offsets by queue id; they are not to be changed."""
        yield from list(self._offsets.items())

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset, or None if the group has none in this queue."""
        return self._offsets.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", {}).get(queue_id)

    def groups(self) -> list[str]:
        """All groups that have offsets."""
        return list(dict.fromkeys(group for _, group in self._pairs()))

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for key in self._offsets:
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            yield topic, group

    def encode(self) -> bytes:
        """The table as a slave asks for it (GET_ALL_CONSUMER_OFFSET), standard JSON."""
        return encode_json_body(ConsumerOffsetTableBody(self._offsets, self._version))

    def merge(self, body: bytes) -> None:
        """Take over a master's table: its queues replace ours, what it does not have stays.

        Source: SlaveSynchronize.syncConsumerOffset (putAll).

        Raises:
            MalformedFrameError: The body is not a table.
        """
        for _ in self.merge_in_steps(body):
            pass

    def merge_in_steps(self, body: bytes) -> Iterator[None]:
        """Do the same, in steps between which the caller may let others do something.

        What is committed here meanwhile may be replaced, as it would be by the next table.

        Raises:
            MalformedFrameError: as above; nothing is taken over.
        """
        theirs = decode_json_body(body, ConsumerOffsetTableBody)
        entries = list(theirs.offset_table.items())
        for at in range(0, len(entries), KEYS_PER_STEP):
            yield
            for key, queues in entries[at : at + KEYS_PER_STEP]:
                if self._offsets.get(key) != queues:
                    self._offsets[key] = queues
                    self._changes += 1
                    self._room = None
        self._version = theirs.data_version

    def save(self) -> None:
        """Write the file if anything changed since the last time.

        Raises:
            StoreFullError: No room. The next call tries again.
        """
        for _ in self.save_in_steps():
            pass

    def save_in_steps(self) -> Iterator[None]:
        """Save, in steps between which the caller may let others do something.

        What is committed meanwhile may be in the file; the next save has it.

        Raises:
            StoreFullError: as above.
        """
        if self._saved_changes != self._changes:
            changes = self._changes
            table = yield from self._as_file_in_steps()
            if (yield from self._file.save_in_steps(table)):
                self._saved_changes = changes

    def _as_file_in_steps(self) -> Generator[None, None, dict[str, object]]:
        topics_by_group: dict[str, list[str]] = {}
        keys = list(self._offsets)
        for at in range(0, len(keys), KEYS_PER_STEP):
            for key in keys[at : at + KEYS_PER_STEP]:
                topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
                topics_by_group.setdefault(group, []).append(topic)
            yield
        for topics in topics_by_group.values():
            topics.sort()
        return {
            "dataVersion": self._version,
            "groupTopicMap": topics_by_group,
            "offsetTable": self._offsets,
        }


def is_offset_of(key: str, *, topic: str | None = None, group: str | None = None) -> bool:
    """Whether a `topic@group` is of this topic and this group; None stands for any."""
    of_topic, _, of_group = key.partition(TOPIC_GROUP_SEPARATOR)
    return topic in (None, of_topic) and group in (None, of_group)
