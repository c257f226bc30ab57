"""GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG: settings as properties, under RocketMQ's names.

Told is what a client or an operator can make use of: no paths, no secrets, nothing about others.
Nothing can be changed at run time: the cluster file is the same on all machines, and a node that
went by other settings than the file says would contradict it after its next start.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.getBrokerConfig, updateBrokerConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.errors import RequestError
from node.remoting.dispatcher import response_to
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID
from tandem.wire.stats_requests import GetBrokerConfigResponseHeader

if TYPE_CHECKING:
    from ha.replication import Replication
    from node.remoting.connection import Connection
    from node.tables.tables import Tables
    from tandem.cluster_file.cluster_config import NodeConfig
    from tandem.wire.remoting_command import RemotingCommand


class BrokerConfig:
    """Serves these two requests."""

    def __init__(self, config: NodeConfig, tables: Tables, replication: Replication) -> None:
        self._config = config
        self._topics = tables.topics
        self._replication = replication

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
            "fileReservedTime": store.file_reserved_time_hours,
            "diskMaxUsedSpaceRatio": store.disk_max_used_space_ratio,
            "timerWheelEnable": store.timer_wheel_enable,
            "transientStorePoolEnable": store.transient_store_pool_enable,
        }
        return {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in values.items()
        }

    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_BROKER_CONFIG: refused."""
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            "no setting of this broker can be changed while it runs; nothing was changed. Change"
            " the cluster file on all machines, and restart the nodes one after the other",
        )
