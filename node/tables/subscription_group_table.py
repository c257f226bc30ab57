"""The consumer groups of one broker; RocketMQ's `SubscriptionGroupManager`.

A group that nobody set up has the defaults, unless that is switched off. What a newer RocketMQ has
written about a group, and we know nothing of, is written again as it was.

Source: RocketMQ 5.3.3, SubscriptionGroupManager, SubscriptionGroupConfig, GroupRetryPolicy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from node.errors import RequestError
from node.tables.topic_config_table import QUEUES_MAX, TOPIC_OR_GROUP
from store.machine.errors import StoreError, TableFileError
from store.machine.table_file import TableFile, next_version
from tandem.wire.request_headers import DataVersion
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import (
    ForbiddenTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from tandem.wire.untrusted import UnreadableError, decode_json

GROUP_CHARACTERS_MAX: Final = 255
"""Source: Validators.CHARACTER_MAX_LENGTH."""

READING: Final = 1
"""The bit of what a group may not do with a topic: reading it.

Source: SubscriptionGroupManager, PermName.INDEX_PERM_READ."""

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
"""Groups that are always there. Source: SubscriptionGroupManager.init."""


class _File(msgspec.Struct, frozen=True, rename="camel"):
    data_version: DataVersion = DataVersion()
    forbidden_table: ForbiddenTable = {}
    subscription_group_table: dict[str, msgspec.Raw] = {}


GROUPS_MAX: Final = 32_768
"""Ours, of one broker: any client's heartbeat sets some up, and the whole table has to fit a frame
that slaves get."""

CONFIG_BYTES_MAX: Final = 16 * 1024
"""Of one group, as JSON. Ours: an ordinary one has 400."""

_SYSTEM_CONFIGS: Final = {name: SubscriptionGroupConfig(name) for name in SYSTEM_GROUPS}

_ALLOWED: Final = "^[%|a-zA-Z0-9_-]+$"

_KNOWN_KEYS: Final = frozenset(SubscriptionGroupConfig.__struct_encode_fields__)


class SubscriptionGroupTable:
    """The groups, what each may not read, and the file they are kept in.

    A change by `update` is on disk before it shows; one by `update_soon` is there with the next
    `save`. A copy for other programs is always written late.
    """

    def __init__(
        self,
        file: TableFile,
        wall_clock_ms: Callable[[], int],
        *,
        is_copy: bool = False,
        auto_create: bool = True,
    ) -> None:
        """Read the file. It may be a copy for other programs: then `save` alone writes it.

        `auto_create` gives the defaults to a group that nobody set up, when it is asked for.

        Raises:
            TableFileError: neither the file nor its backup can be read.
        """
        self._file = file
        self._wall_clock_ms = wall_clock_ms
        self._is_copy = is_copy
        self._auto_create = auto_create
        self._is_saved = True
        saved = file.load(_File) or _File()
        self._version = saved.data_version
        self._forbidden: ForbiddenTable = saved.forbidden_table
        self._groups = dict(_SYSTEM_CONFIGS)
        self._unknown: dict[str, dict[str, Any]] = {}
        for name, raw in saved.subscription_group_table.items():
            self._groups[name], self._unknown[name] = _decoded(name, raw)

    @property
    def configs(self) -> SubscriptionGroupWrapper:
        """The whole table as it travels. The dictionaries inside are never changed again."""
        return SubscriptionGroupWrapper(self._groups, self._forbidden, self._version)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration, or None if nobody set it up."""
        return self._groups.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig:
        """The group's configuration; that of a group that nobody set up has the defaults.

        Source: SubscriptionGroupManager.findSubscriptionGroupConfig, which also stores it. Here
        the heartbeat of its first consumer does that: no pull writes a table.

        Raises:
            RequestError: no group can have that name, or it has to be set up first
                (SUBSCRIPTION_GROUP_NOT_EXIST).
        """
        config = self._groups.get(group)
        if config is not None:
            return config
        if complaint := group_complaint(group):
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, complaint)
        if not self._auto_create:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist, and this broker creates none by"
                " itself (auto_create_subscription_group); set it up first",
            )
        return SubscriptionGroupConfig(group)

    def unknown_of(self, groups: Iterable[str]) -> list[SubscriptionGroupConfig]:
        """What groups that nobody set up get; none of those that cannot be created."""
        if not self._auto_create:
            return []
        return [
            SubscriptionGroupConfig(name)
            for name in dict.fromkeys(groups)
            if name not in self._groups and group_complaint(name) is None
        ]

    def changed(self, *configs: SubscriptionGroupConfig) -> list[SubscriptionGroupConfig]:
        """Return those that the table does not have, or has otherwise."""
        return [each for each in configs if self._groups.get(each.group_name) != each]

    def check(self, *configs: SubscriptionGroupConfig) -> None:
        """Refuse groups with impossible names, and new ones if there are too many already.

        Raises:
            RequestError: INVALID_PARAMETER, or SYSTEM_ERROR if the table is full.
        """
        for config in configs:
            if (complaint := _complaint(config)) is not None:
                raise RequestError(ResponseCode.INVALID_PARAMETER, complaint)
        count = sum(config.group_name not in self._groups for config in configs)
        if count and len(self._groups) + count > GROUPS_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker has {len(self._groups)} consumer groups, and {count} more would be"
                f" over the most it keeps, {GROUPS_MAX}; delete some (deleteSubGroup)",
            )

    def update(self, *configs: SubscriptionGroupConfig) -> None:
        """Create or change groups. Nothing happens if they are like that already.

        Raises:
            RequestError: The table cannot be saved; nothing is changed.
        """
        changed = self.changed(*configs)
        if changed:
            self._replace(self._with(changed), self._forbidden)

    def update_soon(self, *configs: SubscriptionGroupConfig) -> None:
        """Create or change groups, to be on disk with the next `save`."""
        changed = self.changed(*configs)
        if changed:
            self._show(self._with(changed), self._forbidden)
            self._is_saved = False

    def delete(self, group: str) -> None:
        """Forget a group and what it may not read. Harmless if there is none.

        Raises:
            RequestError: the table cannot be saved; nothing is changed.
        """
        if group in self._groups or group in self._forbidden:
            groups = {name: config for name, config in self._groups.items() if name != group}
            forbidden = {name: bits for name, bits in self._forbidden.items() if name != group}
            self._replace(_SYSTEM_CONFIGS | groups, forbidden)
            self._unknown.pop(group, None)

    def forbidden(self, group: str, topic: str) -> int:
        """The bits of what `group` may not do with `topic`; bit 0 is reading."""
        return self._forbidden.get(group, {}).get(topic, 0)

    def with_forbidden(self, group: str, topic: str, bits: int) -> dict[str, int]:
        """What a group may not do with each topic, once these bits are set; 0 allows everything.

        Source: SubscriptionGroupManager.updateForbiddenValue.
        """
        topics = {**self._forbidden.get(group, {}), topic: bits}
        return {name: each for name, each in topics.items() if each}

    def set_forbidden(self, group: str, topics: dict[str, int]) -> None:
        """Replace what a group may not do.

        Raises:
            RequestError: the table cannot be saved; nothing is changed.
        """
        forbidden = {**self._forbidden, group: topics}
        if not topics:
            del forbidden[group]
        if forbidden != self._forbidden:
            self._replace(self._groups, forbidden)

    def replace_all(self, configs: SubscriptionGroupWrapper) -> None:
        """Take over a master's table, version included, if it differs from ours.

        Raises:
            RequestError: The table cannot be saved; nothing is changed.
        """
        if configs != self.configs:
            self._replace(
                configs.subscription_group_table, configs.forbidden_table, configs.data_version
            )

    def replace_groups(
        self, groups: Mapping[str, SubscriptionGroupConfig], forbidden: ForbiddenTable
    ) -> None:
        """Have these groups and no others, under a new version if that is a change."""
        whole = _SYSTEM_CONFIGS | dict(groups)
        if (whole, forbidden) != (self._groups, self._forbidden):
            self._replace(whole, {group: dict(topics) for group, topics in forbidden.items()})

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
            version = self._version
            table = self._as_file(self._groups, self._forbidden, version)
            if (yield from self._file.save_in_steps(table)):
                self._is_saved = version is self._version

    def _with(self, changed: list[SubscriptionGroupConfig]) -> dict[str, SubscriptionGroupConfig]:
        return self._groups | {config.group_name: config for config in changed}

    def _replace(
        self,
        groups: dict[str, SubscriptionGroupConfig],
        forbidden: ForbiddenTable,
        version: DataVersion | None = None,
    ) -> None:
        version = version or next_version(self._version, self._wall_clock_ms())
        if self._is_copy:
            self._is_saved = False
        else:
            try:
                self._write(groups, forbidden, version)
            except StoreError as error:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the table of consumer groups cannot be saved: {error}",
                ) from error
        self._show(groups, forbidden, version)

    def _write(
        self,
        groups: dict[str, SubscriptionGroupConfig],
        forbidden: ForbiddenTable,
        version: DataVersion,
    ) -> None:
        self._file.save(self._as_file(groups, forbidden, version))
        self._is_saved = True

    def _as_file(
        self,
        groups: dict[str, SubscriptionGroupConfig],
        forbidden: ForbiddenTable,
        version: DataVersion,
    ) -> dict[str, object]:
        # Those without unknown fields are written as they are, for that is remembered.
        table: dict[str, object] = {
            name: self._as_object(name, config) if self._unknown.get(name) else config
            for name, config in groups.items()
        }
        return {
            "dataVersion": version,
            "forbiddenTable": forbidden,
            "subscriptionGroupTable": table,
        }

    def _show(
        self,
        groups: dict[str, SubscriptionGroupConfig],
        forbidden: ForbiddenTable,
        version: DataVersion | None = None,
    ) -> None:
        self._version = version or next_version(self._version, self._wall_clock_ms())
        self._groups = groups
        self._forbidden = forbidden

    def _as_object(self, name: str, config: SubscriptionGroupConfig) -> dict[str, object]:
        names = zip(config.__struct_encode_fields__, config.__struct_fields__, strict=True)
        known = {key: getattr(config, attribute) for key, attribute in names}
        whole = self._unknown.get(name, {}) | known
        return {key: whole[key] for key in sorted(whole) if whole[key] not in (None, msgspec.UNSET)}


def _complaint(config: SubscriptionGroupConfig) -> str | None:
    if complaint := group_complaint(config.group_name):
        return complaint
    if config.retry_queue_nums > QUEUES_MAX:
        return f"retryQueueNums {config.retry_queue_nums} must be at most {QUEUES_MAX}"
    size = len(msgspec.json.encode(config))
    if size > CONFIG_BYTES_MAX:
        return f"the configuration of a group with {size} bytes, the most are {CONFIG_BYTES_MAX}"
    return None


def group_complaint(group: str) -> str | None:
    """What is wrong with a group's name, or None. Source: Validators.checkGroup."""
    if not group.strip():
        return "the specified group is blank"
    if len(group) > GROUP_CHARACTERS_MAX:
        return f"the specified group is longer than group max length {GROUP_CHARACTERS_MAX}"
    if TOPIC_OR_GROUP.fullmatch(group) is None:
        return f"the specified group[{group}] contains illegal characters, allowing only {_ALLOWED}"
    return None


def _decoded(name: str, raw: msgspec.Raw) -> tuple[SubscriptionGroupConfig, dict[str, Any]]:
    """Return what we know of a group, and what we do not.

    Raises:
        TableFileError: it is not a group.
    """
    try:
        config = decode_json(raw, SubscriptionGroupConfig)
        fields = decode_json(raw, dict[str, Any])
    except UnreadableError as error:
        raise TableFileError(
            f"subscriptionGroup.json: group {name!r} cannot be read ({error});"
            " correct it, or restore the .bak",
            path="subscriptionGroup.json",
        ) from error
    return config, {key: value for key, value in fields.items() if key not in _KNOWN_KEYS}
