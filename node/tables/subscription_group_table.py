"""The consumer groups of one broker; RocketMQ's `SubscriptionGroupManager`.

A group that nobody set up gets the defaults when it is first asked for. What a newer RocketMQ has
written about a group, and we know nothing of, is written again as it was.

Source: RocketMQ 5.3.3, SubscriptionGroupManager, SubscriptionGroupConfig, GroupRetryPolicy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from node.errors import RequestError
from node.tables.topic_config_table import TOPIC_OR_GROUP
from store.machine.errors import StoreError, TableFileError
from store.machine.table_file import TableFile, next_version
from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import DataVersion
from tandem.wire.response_code import ResponseCode
from tandem.wire.untrusted import UnreadableError, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP_CHARACTERS_MAX: Final = 255
"""Source: Validators.CHARACTER_MAX_LENGTH."""

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


class ExponentialRetryPolicy(msgspec.Struct, frozen=True):
    """Pauses that grow by a factor, in milliseconds."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(msgspec.Struct, frozen=True):
    """One pause for each attempt, in milliseconds."""

    next: list[Int64] = []


class GroupRetryPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """How long a message waits until it is delivered again."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(msgspec.Struct, frozen=True, rename="camel"):
    """What a group subscribes to, where that is set for it."""

    topic: str
    expression_type: str = "TAG"
    expression: str = "*"
    version: Int64 = 0


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, rename="camel"):
    """One consumer group."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = {}


class _File(msgspec.Struct, frozen=True, rename="camel"):
    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, Int32]] = {}
    subscription_group_table: dict[str, msgspec.Raw] = {}


_ALLOWED: Final = "^[%|a-zA-Z0-9_-]+$"

_KNOWN_KEYS: Final = frozenset(SubscriptionGroupConfig.__struct_encode_fields__)


class SubscriptionGroupTable:
    """The groups, what each may not read, and the file they are kept in.

    A change is on disk before it shows.

    Raises:
        TableFileError: neither the file nor its backup can be read.
    """

    def __init__(self, file: TableFile, wall_clock_ms: Callable[[], int]) -> None:
        self._file = file
        self._wall_clock_ms = wall_clock_ms
        saved = file.load(_File) or _File()
        self._version = saved.data_version
        self._forbidden = saved.forbidden_table
        self._groups = {name: SubscriptionGroupConfig(name) for name in SYSTEM_GROUPS}
        self._unknown: dict[str, dict[str, Any]] = {}
        for name, raw in saved.subscription_group_table.items():
            self._groups[name], self._unknown[name] = _decoded(name, raw)

    @property
    def data_version(self) -> DataVersion:
        """Moves with every change."""
        return self._version

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration, or None if there is no such group."""
        return self._groups.get(group)

    def find_or_create(self, group: str) -> SubscriptionGroupConfig:
        """The group's configuration; a new group gets the defaults.

        Source: SubscriptionGroupManager.findSubscriptionGroupConfig.

        Raises:
            RequestError: no group can have that name, or the table cannot be saved.
        """
        config = self._groups.get(group)
        if config is None:
            config = SubscriptionGroupConfig(group)
            self.update(config)
        return config

    def update(self, *configs: SubscriptionGroupConfig) -> None:
        """Create or change groups. Nothing happens if they are like that already.

        Raises:
            RequestError: no group can have that name, or the table cannot be saved.
        """
        for config in configs:
            if (complaint := group_complaint(config.group_name)) is not None:
                raise RequestError(ResponseCode.SYSTEM_ERROR, complaint)
        groups = self._groups | {config.group_name: config for config in configs}
        if groups != self._groups:
            self._replace(groups, self._forbidden)

    def delete(self, group: str) -> None:
        """Forget a group and what it may not read. Harmless if there is none.

        Raises:
            RequestError: the table cannot be saved; nothing is changed.
        """
        if group in self._groups:
            groups = {name: config for name, config in self._groups.items() if name != group}
            forbidden = {name: bits for name, bits in self._forbidden.items() if name != group}
            self._replace(groups, forbidden)
            self._unknown.pop(group, None)

    def forbidden(self, group: str, topic: str) -> int:
        """The bits of what `group` may not do with `topic`; bit 0 is reading."""
        return self._forbidden.get(group, {}).get(topic, 0)

    def set_forbidden(self, group: str, topic: str, bits: int) -> None:
        """Replace those bits; 0 allows everything.

        Source: SubscriptionGroupManager.updateForbiddenValue.

        Raises:
            RequestError: the table cannot be saved; nothing is changed.
        """
        if bits == self.forbidden(group, topic):
            return
        topics = {**self._forbidden.get(group, {}), topic: bits}
        if not bits:
            del topics[topic]
        forbidden = {**self._forbidden, group: topics}
        if not topics:
            del forbidden[group]
        self._replace(self._groups, forbidden)

    def _replace(
        self, groups: dict[str, SubscriptionGroupConfig], forbidden: dict[str, dict[str, int]]
    ) -> None:
        version = next_version(self._version, self._wall_clock_ms())
        table = {name: self._as_object(name, config) for name, config in groups.items()}
        try:
            self._file.save(
                {
                    "dataVersion": version,
                    "forbiddenTable": forbidden,
                    "subscriptionGroupTable": table,
                }
            )
        except StoreError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the table of consumer groups cannot be saved: {error}"
            ) from error
        self._version = version
        self._groups = groups
        self._forbidden = forbidden

    def _as_object(self, name: str, config: SubscriptionGroupConfig) -> dict[str, object]:
        names = zip(config.__struct_encode_fields__, config.__struct_fields__, strict=True)
        known = {key: getattr(config, attribute) for key, attribute in names}
        whole = self._unknown.get(name, {}) | known
        return {key: whole[key] for key in sorted(whole) if whole[key] is not None}


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
            " correct it, or restore the .bak"
        ) from error
    return config, {key: value for key, value in fields.items() if key not in _KNOWN_KEYS}
