"""What is set for a consumer group, as it travels and as it is kept in files.

Source: RocketMQ 5.3.3, SubscriptionGroupConfig, GroupRetryPolicy, SubscriptionGroupWrapper.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import DataVersion


class ExponentialRetryPolicy(msgspec.Struct, frozen=True, gc=False):
    """Pauses that grow by a factor, in milliseconds."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(msgspec.Struct, frozen=True, gc=False):
    """One pause for each attempt, in milliseconds."""

    next: list[Int64] = []


class GroupRetryPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """How long a message waits until it is delivered again."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | UnsetType | None = UNSET
    customized_retry_policy: CustomizedRetryPolicy | UnsetType | None = UNSET


class SimpleSubscriptionData(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a group subscribes to, where that is set for it."""

    topic: str
    expression_type: str = "TAG"
    expression: str = "*"
    version: Int64 = 0


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, gc=False, rename="camel"):
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
    subscription_data_set: list[SimpleSubscriptionData] | UnsetType | None = UNSET
    attributes: dict[str, str] = {}


ForbiddenTable = dict[str, dict[str, Int32]]
"""Group to topic to the bits of what it may not do; bit 0 is reading."""


class SubscriptionGroupWrapper(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: ForbiddenTable = {}
    data_version: DataVersion = DataVersion()


class SubscriptionGroupList(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] = []
