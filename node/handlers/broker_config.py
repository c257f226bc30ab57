"""GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG: settings as properties, under RocketMQ's names.

The answer has what a client or an operator can use: no paths, no secrets, nothing about others.
One setting can be changed while a node runs, for an operator whose disk gets full: how long files
are kept. It counts until the node stops. Everything else is the cluster file's, which is the same
on all machines; a node that went by other settings would contradict it after its next start.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.getBrokerConfig, updateBrokerConfig.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from ha.replication import Replication
from node.errors import RequestError
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from node.tables.tables import Tables
from store import MessageStore
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.access_control import Right
from tandem.wire.admin_headers import settings_of
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID
from tandem.wire.stats_requests import GetBrokerConfigResponseHeader
from tandem.wire.untrusted import UnreadableError, whole_number

_log = logging.getLogger(__name__)

FILE_RESERVED_TIME: Final = "fileReservedTime"
HOURS_MAX: Final = 10 * 366 * 24


class BrokerConfig:
    """Serves these two requests."""

    def __init__(
        self, config: NodeConfig, store: MessageStore, tables: Tables, replication: Replication
    ) -> None:
        self._config = config
        self._cleaning = store.clean_service.commit_log
        self._topics = tables.topics
        self._replication = replication

    @serves(
        RequestCode.GET_BROKER_CONFIG,
        (Resource.BROKER, Action.READ),
        of_cluster(Right.GET),
    )
    def get(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CONFIG: one `key=value` a line."""
        version = self._topics.configs.data_version
        return response_to(
            command,
            ext=GetBrokerConfigResponseHeader(str(msgspec.json.encode(version), "utf-8")),
            body="".join(
                f"{key}={value}\n" for key, value in sorted(self._properties().items())
            ).encode(),
        )

    def _properties(self) -> dict[str, str]:
        node, cluster = self._config.node, self._config.cluster
        store, broker = cluster.store, cluster.broker
        is_master = self._replication.is_master
        values: dict[str, str | int | bool] = {
            "brokerClusterName": cluster.cluster.name,
            "brokerName": node.group,
            "brokerId": MASTER_ID if is_master else node.broker_id,
            "brokerRole": str(self._config.broker_role) if is_master else "SLAVE",
            "brokerIP1": node.address,
            "listenPort": node.port,
            "haListenPort": node.ha_port,
            "autoCreateTopicEnable": broker.auto_create_topic_enable,
            "autoCreateSubscriptionGroup": broker.auto_create_subscription_group,
            "enablePropertyFilter": broker.enable_property_filter,
            "recallMessageEnable": broker.recall_message_enable,
            "priorityOrderAsc": broker.priority_order_asc,
            "popFromRetryProbabilityForPriority": broker.pop_from_retry_probability_for_priority,
            "storeReplyMessageEnable": broker.store_reply_message_enable,
            "rejectTransactionMessage": broker.reject_transaction_message,
            "defaultTopicQueueNums": broker.default_topic_queue_nums,
            "registerNameServerPeriod": broker.register_broker_interval_ms,
            "flushDiskType": str(store.flush_disk_type),
            "flushIntervalCommitLog": store.flush_interval_commit_log_ms,
            "flushCommitLogLeastPages": store.flush_commit_log_least_pages,
            "flushCommitLogThoroughInterval": store.flush_commit_log_thorough_interval_ms,
            "flushIntervalConsumeQueue": store.flush_interval_consume_queue_ms,
            "syncFlushTimeout": store.sync_flush_timeout_ms,
            "mappedFileSizeCommitLog": store.mapped_file_size_commit_log_bytes,
            "mappedFileSizeConsumeQueue": store.mapped_file_size_consume_queue_bytes,
            "maxMessageSize": store.max_message_size_bytes,
            "messageDelayLevel": store.message_delay_level,
            "messageIndexEnable": store.message_index_enable,
            "maxHashSlotNum": store.max_hash_slot_num,
            "maxIndexNum": store.max_index_num,
            "deleteWhen": str(store.delete_when),
            FILE_RESERVED_TIME: self._cleaning.file_reserved_time_hours,
            "diskMaxUsedSpaceRatio": store.disk_max_used_space_ratio,
            "timerWheelEnable": store.timer_wheel_enable,
            "transientStorePoolEnable": store.transient_store_pool_enable,
        }
        return {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in values.items()
        }

    # It decides how soon messages are deleted.
    @serves(
        RequestCode.UPDATE_BROKER_CONFIG,
        (Resource.BROKER, Action.ORDER),
        of_cluster(Right.UPDATE),
    )
    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_BROKER_CONFIG: `fileReservedTime`, in hours. To say what is so, is no change.

        Raises:
            RequestError: anything else is to be changed (NO_PERMISSION), or to what cannot be
                (INVALID_PARAMETER); nothing was changed.
        """
        known, hours = self._properties(), self._cleaning.file_reserved_time_hours
        for key, value in settings_of(command.body).items():
            if known.get(key) == value:
                continue
            if key != FILE_RESERVED_TIME:
                raise RequestError(
                    ResponseCode.NO_PERMISSION,
                    f"{key} of this broker cannot be changed while it runs; nothing was changed."
                    " Change the cluster file on all machines, and restart the nodes one after the"
                    " other",
                )
            hours = _hours(value)
        if hours != self._cleaning.file_reserved_time_hours:
            self._cleaning.file_reserved_time_hours = hours
            _log.warning(
                "files of the log are kept for %d h until this node stops: %s",
                hours,
                connection.peer,
            )
        return response_to(command)


def _hours(text: str) -> int:
    try:
        hours = whole_number(text)
    except UnreadableError:
        hours = 0
    if not 1 <= hours <= HOURS_MAX:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"{FILE_RESERVED_TIME} {text[:100]!r} must be a number of hours from 1 to {HOURS_MAX}",
        )
    return hours
