"""What has changed in a large table of topics since its file was written: a small file beside it.

RocketMQ writes the whole table for each new topic, and so do we while it has few. With thousands
of topics each new one would cost what all of them do. So it is written here first, and with the
whole table within seconds, or when there is much in here:

    topics.json        the table at a version
    topics.json.new    the changes after it, each with the version that the table had with it

A table that is read has the version after which the changes begin, or that of one of them, for it
is written later. Those after it are made to it again. If it has another version, it was written
since, by this node or by another program, and is taken as it is.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import Disk
from tandem.wire.request_headers import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from tandem.wire.store_layout import TABLE_CHANGES_SUFFIX
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)

CHANGES_MAX: Final = 256
"""Topics in the file that the table has not. Each new one writes all of them again."""


class TopicChange(msgspec.Struct, frozen=True):
    """Topics that are new or different, and the version of the table with them."""

    version: DataVersion
    topics: list[TopicConfig]


class _Content(msgspec.Struct, frozen=True):
    since: DataVersion
    changes: list[TopicChange]


class TopicChanges:
    """The changes of one table, and their file."""

    def __init__(self, disk: Disk, table_path: str) -> None:
        self._disk = disk
        self._path = f"{table_path}{TABLE_CHANGES_SUFFIX}"
        self._since = DataVersion()
        """Of the whole table before the last one: a table that rots is read from its `.bak`."""
        self._changes: list[TopicChange] = []
        self._in_table = 0
        """How many of the changes, the first, the last whole table has."""
        self._is_in_file = False

    @property
    def has_room(self) -> bool:
        """Whether one more change costs less than the table."""
        return sum(len(change.topics) for change in self._changes[self._in_table :]) < CHANGES_MAX

    def load(self, table: TopicConfigSerializeWrapper) -> TopicConfigSerializeWrapper:
        """Return a table that was read from its file with the changes after that."""
        self._since = table.data_version
        try:
            found = read_checked_json(self._disk, self._path, _Content)
        except UnreadableError as error:
            _log.error("%s: %s; topics of the last seconds may be missing", self._path, error)
            return table
        if found is None or not found.changes:
            return table
        self._is_in_file = True
        versions = [found.since, *(change.version for change in found.changes)]
        if table.data_version not in versions:
            if table.data_version.counter < versions[-1].counter:
                _log.warning(
                    "%s: its changes follow another version of the table, which is taken as it is",
                    self._path,
                )
            return table
        self._since, self._changes = found.since, found.changes
        self._in_table = versions.index(table.data_version)
        if self._in_table == len(self._changes):
            return table
        topics = dict(table.topic_config_table)
        for change in self._changes[self._in_table :]:
            topics |= {config.topic_name: config for config in change.topics}
        return TopicConfigSerializeWrapper(topics, versions[-1])

    def add(self, version: DataVersion, topics: list[TopicConfig]) -> None:
        """Note a change, which is on the disk with the next `write`, or with the whole table."""
        self._changes.append(TopicChange(version, topics))

    def drop_last(self) -> None:
        """Forget the change that was noted last: nothing is changed."""
        self._changes.pop()

    def write(self) -> None:
        """Have all that was noted on the disk.

        Raises:
            StoreFullError: no room; the file is as it was.
            DiskFailedError: anything else; the file is as it was.
        """
        self._write(self._since, self._changes)

    def _write(self, since: DataVersion, changes: list[TopicChange]) -> None:
        replace_with_checked_json(self._disk, self._path, _Content(since, changes))
        self._is_in_file = bool(changes)

    def forget(self) -> None:
        """Forget all, also in the file: the table will be another node's, maybe in our version.

        Raises:
            StoreError: as `write`.
        """
        since = self._versions[self._in_table]
        if self._is_in_file:
            self._write(since, [])
        self._since, self._changes, self._in_table = since, [], 0

    def are_in_table(self, version: DataVersion) -> None:
        """Take note that the table is on the disk in this version, with all changes up to it.

        They stay until the next whole table: the one before is beside this, and is read if it rots.
        """
        versions = self._versions
        if version == versions[self._in_table]:
            return
        if version in versions:
            self._since = versions[self._in_table]
            del self._changes[: self._in_table]
            self._in_table = versions.index(version) - self._in_table
        else:
            self._since, self._changes, self._in_table = version, [], 0

    @property
    def _versions(self) -> list[DataVersion]:
        """Of the table before all changes, and after each."""
        return [self._since, *(change.version for change in self._changes)]
