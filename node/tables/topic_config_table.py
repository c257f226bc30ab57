"""Which topics there are and how many queues they have; RocketMQ's `TopicConfigManager`.

A send to an unknown topic creates it out of the *default topic* the producer names, `TBW102`, if
that one carries the inherit permission. A slave's table is a copy of its master's.

Of the topics that RocketMQ creates for itself, those of features that this broker does not have
(transactional messages) are left out, and timers where they are switched off.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from node.errors import RequestError
from node.tables.topic_attributes import BATCH_QUEUE_TYPE, QUEUE_TYPE, is_compacted
from node.tables.topic_changes import TopicChanges
from store.machine.errors import StoreError
from store.machine.signal import Signal
from store.machine.table_file import TableFile, next_version
from store.queue.consume_queue_store import nothing_hidden
from tandem.wire.request_headers import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import PERM_INHERIT, PERM_READ, PERM_WRITE
from tandem.wire.system_topics import (
    AUTO_CREATE_TOPIC,
    JOURNAL_TOPIC,
    REPLY_TOPIC_SUFFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)

PERM_ALL: Final = PERM_READ | PERM_WRITE | PERM_INHERIT


SCHEDULE_TOPIC_QUEUE_NUM: Final = 18
"""Source: TopicConfigManager.SCHEDULE_TOPIC_QUEUE_NUM."""


TOPIC_CHARACTERS_MAX: Final = 127
"""Source: TopicValidator.TOPIC_MAX_LENGTH."""

HIDDEN_BEFORE_ATTRIBUTE: Final = "hidden.before"
"""Ours, of a topic that was deleted and created again: where in the log it began anew."""

QUEUES_MAX: Final = 65_535
"""Ours: RocketMQ takes any number; each queue costs a directory and a file."""

TOPICS_MAX: Final = 32_768
"""Ours, of one broker. Any client may create topics, and the whole table has to fit a frame: slaves
and name servers get it as one."""

REMEMBERED_MAX: Final = 1_024
"""Of the changes before the last one: which topics differ is known without a look at all."""

WRITTEN_WHOLE_MAX: Final = 128
"""Up to this many topics the file has each change when it shows, as RocketMQ's has."""

NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        # Not in RocketMQ's set: there the wheel delivers to whatever topic anybody names.
        TIMER_TOPIC,
        JOURNAL_TOPIC,
    }
)
"""Source: TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET; the last two are ours."""

TOPIC_OR_GROUP: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
"""Source: TopicValidator.isTopicOrGroupIllegal."""


def topic_complaint(topic: str) -> str | None:
    """What is wrong with a topic's name, or None. Source: TopicValidator.validateTopic."""
    if not topic:
        return "The specified topic is blank."
    if len(topic) > TOPIC_CHARACTERS_MAX:
        return f"The specified topic is longer than topic max length {TOPIC_CHARACTERS_MAX}."
    if TOPIC_OR_GROUP.fullmatch(topic) is None:
        return (
            f"The specified topic[{topic}] contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    return None


class TopicConfigTable:
    """The topics of one broker, and the file they are kept in.

    A change by `update` is on disk before it shows, of a large table in a file beside it; one by
    `update_soon` is there with the next `save`. A copy for other programs is always written late.

    Attributes:
        changes: Notified after each change, to register it.
        compacted: The topics of which only the newest message of each key is kept. Always the same
            set, for each read looks into it.
    """

    def __init__(
        self,
        file: TableFile,
        wall_clock_ms: Callable[[], int],
        *,
        is_copy: bool = False,
    ) -> None:
        """Read the file and the one beside it. Of a copy for other programs `save` alone writes it.

        Raises:
            TableFileError: the file is damaged.
        """
        self.changes = Signal()
        self._steps: deque[tuple[DataVersion, list[TopicConfig]]] = deque(maxlen=REMEMBERED_MAX)
        """The last changes, each with the version of the table before it."""
        self._deleted: set[str] = set()
        """Topics that were deleted since the start, and are not there again."""
        self._is_copy = is_copy
        self._is_saved = True
        self._file = file
        self._wall_clock_ms = wall_clock_ms
        saved = file.load(TopicConfigSerializeWrapper) or TopicConfigSerializeWrapper()
        # Also of a copy: a classic node may have left them.
        self._pending = TopicChanges(file.disk, file.path)
        whole, saved = saved, self._pending.load(saved)
        self._is_saved = saved is whole
        self._version = saved.data_version
        self._topics = saved.topic_config_table
        self.compacted: set[str] = set()
        self._find_compacted()

    @property
    def configs(self) -> TopicConfigSerializeWrapper:
        """The whole table as it travels. The dictionary inside is never changed again."""
        return TopicConfigSerializeWrapper(self._topics, self._version)

    def changed_since(self, version: DataVersion) -> set[str] | None:
        """Which topics are new or different since a version; None if that is not known.

        None of the topics that were there then is missing now. `state_version` is not looked at.
        """
        names: set[str] = set()
        wanted = version.counter, version.timestamp
        if wanted == (self._version.counter, self._version.timestamp):
            return names
        for before, changed in reversed(self._steps):
            names.update(config.topic_name for config in changed)
            if wanted == (before.counter, before.timestamp):
                return names
        return None

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's configuration, or None if there is no such topic."""
        return self._topics.get(topic)

    def is_batch(self, topic: str) -> bool:
        """Whether the topic's queues have one unit for a batch instead of one for a message.

        Source: QueueTypeUtils.isBatchCq.
        """
        config = self._topics.get(topic)
        return config is not None and (config.attributes.get(QUEUE_TYPE) == BATCH_QUEUE_TYPE)

    def _find_compacted(self, changed: list[TopicConfig] | None = None) -> None:
        looked_at = self._topics.values() if changed is None else changed
        found = {
            config.topic_name
            for config in looked_at
            if config.attributes and is_compacted(config.attributes)
        }
        if changed is None:
            self.compacted &= found
        else:
            self.compacted -= {config.topic_name for config in changed} - found
        self.compacted |= found

    def hidden_before(self, topic: str) -> int:
        """Up to where in the log records of this topic are those of a deleted one."""
        config = self._topics.get(topic)
        text = "" if config is None else config.attributes.get(HIDDEN_BEFORE_ATTRIBUTE, "")
        return int(text) if text.isascii() and text.isdigit() else 0

    def as_created(
        self, *configs: TopicConfig, hide: Callable[[str], int] = nothing_hidden
    ) -> list[TopicConfig]:
        """Return them with a note of what is hidden: of the known ones as it is, else as found.

        `hide` passes over the messages that are left of a deleted topic, and returns where in the
        log they end; 0 if there are none.

        Nothing is hidden of a topic that nobody has deleted since this table was read. It may be
        missing because a crash or a lost file took it out of the table: then what is in its queues
        is owed to its consumers. Where the table is a copy, the log knows each topic before its
        first message: one that is missing was deleted, perhaps by an earlier master.
        """
        return [self._with_hidden(config, hide) for config in configs]

    def _with_hidden(self, config: TopicConfig, hide: Callable[[str], int]) -> TopicConfig:
        known = self._topics.get(config.topic_name)
        if known is not None:
            note = known.attributes.get(HIDDEN_BEFORE_ATTRIBUTE, "")
        elif not self._is_copy and config.topic_name not in self._deleted:
            note = ""
        else:
            end = hide(config.topic_name)
            note = str(end) if end else ""
        if not note:
            return config
        attributes = {**config.attributes, HIDDEN_BEFORE_ATTRIBUTE: note}
        return msgspec.structs.replace(config, attributes=attributes)

    def changed(self, *configs: TopicConfig) -> list[TopicConfig]:
        """Return those that the table does not have, or has otherwise."""
        return [each for each in configs if self._topics.get(each.topic_name) != each]

    def check_room(self, *configs: TopicConfig) -> None:
        """Refuse topics that are new, if there are too many already.

        Raises:
            RequestError: The table is full (SYSTEM_ERROR).
        """
        count = sum(config.topic_name not in self._topics for config in configs)
        if count and len(self._topics) + count > TOPICS_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker has {len(self._topics)} topics, and {count} more would be over the"
                f" most it keeps, {TOPICS_MAX}; use topics that exist, or another group",
            )

    def update(self, *configs: TopicConfig) -> None:
        """Create or change topics. Nothing happens if they are like that already.

        Raises:
            RequestError: The table cannot be saved; nothing is changed.
        """
        changed = self.changed(*configs)
        if not changed:
            return
        new = self._with(changed)
        is_large = len(self._topics) > WRITTEN_WHOLE_MAX and self._pending.has_room
        if self._is_copy or not is_large:
            self._replace(new, changed)
            return
        self._pending.add(new.data_version, changed)
        try:
            self._pending.write()
        except StoreError as error:
            self._pending.drop_last()
            raise _not_saved(error) from error
        self._show(new, changed)
        self._is_saved = False

    def update_soon(self, *configs: TopicConfig) -> None:
        """Create or change topics, to be on disk with the next `save`."""
        changed = self.changed(*configs)
        if changed:
            new = self._with(changed)
            if not self._is_copy:
                self._pending.add(new.data_version, changed)
            self._show(new, changed)
            self._is_saved = False

    def delete(self, topic: str) -> None:
        """Forget a topic. Harmless if there is none.

        Raises:
            RequestError: The table cannot be saved; nothing is changed.
        """
        if topic in self._topics:
            topics = {name: each for name, each in self._topics.items() if name != topic}
            self.replace_topics(topics)
            self._deleted.add(topic)

    def _with(self, changed: list[TopicConfig]) -> TopicConfigSerializeWrapper:
        version = next_version(self._version, self._wall_clock_ms())
        topics = self._topics | {config.topic_name: config for config in changed}
        return TopicConfigSerializeWrapper(topics, version)

    def config_for_send(self, topic: str, default_topic: str, queue_nums: int) -> TopicConfig:
        """Return what `topic` is to be out of `default_topic`, with at most `queue_nums` queues.

        Source: TopicConfigManager.createTopicInSendMessageMethod.

        Raises:
            RequestError: The default topic is missing or does not inherit, or a topic of the system
                is not there (TOPIC_NOT_EXIST).
        """
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
        if topic.startswith(SYSTEM_TOPIC_PREFIX):
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, and brokers alone create those that begin with"
                f" {SYSTEM_TOPIC_PREFIX}",
            )
        return self._inherited(topic, default_topic, queue_nums)

    def replace_all(self, configs: TopicConfigSerializeWrapper) -> None:
        """Take over a master's table, version included, if the version differs from ours.

        Raises:
            RequestError: The table cannot be saved; nothing is changed.
        """
        if configs.data_version != self._version or configs.topic_config_table != self._topics:
            try:
                self._pending.forget()
            except StoreError as error:
                raise _not_saved(error) from error
            self._replace(configs)

    def replace_topics(self, topics: dict[str, TopicConfig]) -> None:
        """Have these topics and no others, under a new version if that is a change.

        Raises:
            RequestError: The table cannot be saved; nothing is changed.
        """
        if topics != self._topics:
            version = next_version(self._version, self._wall_clock_ms())
            self._replace(TopicConfigSerializeWrapper(dict(topics), version))

    def _inherited(self, topic: str, default_topic: str, queue_nums: int) -> TopicConfig:
        default = self._topics.get(default_topic)
        if default is None or not default.perm & PERM_INHERIT or queue_nums < 1:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please! It cannot be created on the fly"
                f" from {default_topic!r}",
            )
        queues = min(queue_nums, default.write_queue_nums)
        return TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=default.perm & ~PERM_INHERIT,
            topic_sys_flag=default.topic_sys_flag,
        )

    def save(self) -> None:
        """Write the file if anything changed since the last time.

        Raises:
            StoreError: It cannot be written. The next call tries again.
        """
        for _ in self.save_in_steps():
            pass

    def save_in_steps(self) -> Iterator[None]:
        """Save, in steps between which the caller may let others do something.

        Raises:
            StoreError: as above.
        """
        if not self._is_saved:
            configs = self.configs
            if (yield from self._file.save_in_steps(_as_file(configs))):
                self._is_saved = configs.data_version is self._version
                self._pending.are_in_table(configs.data_version)

    def _replace(
        self, configs: TopicConfigSerializeWrapper, changed: list[TopicConfig] | None = None
    ) -> None:
        if self._is_copy:
            self._is_saved = False
        else:
            try:
                self._write(configs)
            except StoreError as error:
                raise _not_saved(error) from error
        self._show(configs, changed)

    def _write(self, configs: TopicConfigSerializeWrapper) -> None:
        self._file.save(_as_file(configs))
        self._is_saved = True
        self._pending.are_in_table(configs.data_version)

    def _show(
        self, configs: TopicConfigSerializeWrapper, changed: list[TopicConfig] | None = None
    ) -> None:
        """Have these topics; `changed` are those that differ, where that is known."""
        if changed is None:
            self._steps.clear()
        else:
            self._steps.append((self._version, changed))
        self._version = configs.data_version
        self._topics = configs.topic_config_table
        self._find_compacted(changed)
        self._deleted.difference_update(
            self._topics if changed is None else {config.topic_name for config in changed}
        )
        self.changes.notify()


def _not_saved(error: StoreError) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, f"the topic table cannot be saved: {error}")


def _as_file(configs: TopicConfigSerializeWrapper) -> dict[str, object]:
    return {"dataVersion": configs.data_version, "topicConfigTable": configs.topic_config_table}


def system_topics(
    cluster: str,
    broker: str,
    *,
    auto_create_queue_nums: int | None,
    timer_wheel_enable: bool = False,
) -> list[TopicConfig]:
    """The topics a master creates for itself. Without a number there is no auto-creation.

    Source: the constructor of TopicConfigManager.
    """
    sizes = [
        ("SELF_TEST_TOPIC", 1, PERM_READ | PERM_WRITE),
        ("BenchmarkTest", 1024, PERM_READ | PERM_WRITE),
        (cluster, 16, PERM_ALL),
        (broker, 1, PERM_ALL),
        ("OFFSET_MOVED_EVENT", 1, PERM_READ | PERM_WRITE),
        (SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUE_NUM, PERM_READ | PERM_WRITE),
        (f"{cluster}{REPLY_TOPIC_SUFFIX}", 1, PERM_READ | PERM_WRITE),
        (RMQ_SYS_TRANS_HALF_TOPIC, 1, PERM_READ | PERM_WRITE),
        (RMQ_SYS_TRANS_OP_HALF_TOPIC, 1, PERM_READ | PERM_WRITE),
    ]
    if timer_wheel_enable:
        sizes.append((TIMER_TOPIC, 1, PERM_READ | PERM_WRITE))
    if auto_create_queue_nums is not None:
        sizes.append((AUTO_CREATE_TOPIC, auto_create_queue_nums, PERM_ALL))
    return [
        TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for name, queues, perm in sizes
    ]
