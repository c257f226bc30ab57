"""The catalogue of figures: every name that there is, its kind, its unit in words, and its bounds.

    rocketmq_...  as RocketMQ 5.3.3 names them; so its dashboards and rules fit
    tandem_...    what RocketMQ does not have
    process_...   as Prometheus' own clients name them

and, if the cluster file wants them, the names of rocketmq-exporter for the same numbers.

The names are those of samples. Source: RocketMQ 5.3.3, BrokerMetricsConstant,
DefaultStoreMetricsConstant, RemotingMetricsConstant; rocketmq-exporter, RMQMetricsCollector.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

import msgspec


class Kind(enum.Enum):
    """What Prometheus makes of a family."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Base(enum.Enum):
    """Which labels all figures of a family have."""

    ROCKETMQ = enum.auto()
    """cluster, node_type, node_id: as RocketMQ's broker, whose node_id is its broker name."""
    OURS = enum.auto()
    """cluster, group, node."""
    EXPORTER = enum.auto()
    """cluster, broker, brokerIP: as rocketmq-exporter."""


class Family(msgspec.Struct, frozen=True):
    """All figures of one name."""

    kind: Kind
    help: str
    base: Base = Base.OURS
    is_of_process: bool = False
    """Whether it counts from the beginning of the process, and not of the store."""

    @property
    def is_exporters(self) -> bool:
        """Whether it has a name of rocketmq-exporter."""
        return self.base is Base.EXPORTER


def sample_names(name: str, family: Family) -> Iterator[str]:
    """The names that figures of a family have."""
    if family.kind is Kind.HISTOGRAM:
        for part in ("bucket", "sum", "count"):
            yield f"{name}_{part}"
    else:
        yield name


def _of(
    base: Base, kind: Kind, helps: dict[str, str], *, is_of_process: bool = False
) -> dict[str, Family]:
    return {name: Family(kind, words, base, is_of_process) for name, words in helps.items()}


PUT_STEPS: Final = (
    *("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s"),
    *("1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore"),
)
"""The steps of `node.tables.put_times`, as rocketmq-exporter names them."""

RUNTIME: Final = "rocketmq_brokeruntime_"
"""Before the names of what a broker says of itself (GET_BROKER_RUNTIME_INFO)."""

FAMILIES: Final[dict[str, Family]] = {
    **_of(
        Base.ROCKETMQ,
        Kind.COUNTER,
        {
            "rocketmq_messages_in_total": "Messages that came into a topic, also in batches",
            "rocketmq_throughput_in_total": "Bytes of their records",
            "rocketmq_messages_out_total": "Messages that a group was given",
            "rocketmq_throughput_out_total": "Bytes of their records",
        },
    ),
    **_of(
        Base.ROCKETMQ,
        Kind.GAUGE,
        {
            "rocketmq_broker_permission": "4 for reading, and 2 for writing",
            "rocketmq_topic_number": "Topics",
            "rocketmq_consumer_group_number": "Consumer groups that are set up",
            "rocketmq_producer_connections": "Producers in producer groups",
            "rocketmq_consumer_connections": "Consumers of a consumer group",
            "rocketmq_consumer_lag_messages": (
                "Messages that a group has not consumed yet; below 0 past the end"
            ),
            "rocketmq_consumer_lag_latency_milliseconds": (
                "How long the oldest of them has been stored; 0 if there is none"
            ),
            "rocketmq_consumer_inflight_messages": "Messages given out, and not consumed yet",
            "rocketmq_consumer_ready_messages": "Messages not given out yet",
            "rocketmq_processor_watermark": "Connections that wait for a turn",
            "rocketmq_storage_size_bytes": "Bytes of the log",
            "rocketmq_storage_flush_behind_bytes": "Bytes of the log that are not on the disk",
            "rocketmq_storage_dispatch_behind_bytes": (
                "Bytes of the log that are in no queue and no index yet"
            ),
            "rocketmq_storage_message_reserve_time_milliseconds": (
                "How long the oldest message has been stored"
            ),
        },
    ),
    **_of(
        Base.OURS,
        Kind.GAUGE,
        {
            "tandem_role": "1 for the role that the node has",
            "tandem_takes_messages": "1 if the node takes messages, else 0",
            "tandem_epoch": "Epoch that the node knows of",
            "tandem_in_sync_replicas": "Members of the in-sync set, the master included",
            "tandem_in_sync_replicas_needed": "Fewer, and no message is taken",
            "tandem_replica_in_sync": "1 for another node that is in sync, else 0",
            "tandem_replica_connected": "1 for another node that is connected, else 0",
            "tandem_replica_lag_bytes": "Bytes of the log that another node has not acknowledged",
            "tandem_lease_left_seconds": "How long the master may go on without an answer",
            "tandem_feature_level": "Feature level of the fenced group",
            "tandem_not_run_seconds": (
                "The longest time in the last ten minutes in which the process was not run"
            ),
            "tandem_last_switch_timestamp_seconds": (
                "When the group changed its master last, in seconds since 1970, and why"
            ),
            "tandem_log_start_bytes": "Offset of the first byte of the log",
            "tandem_log_end_bytes": "Offset after the last byte of the log",
            "tandem_log_flushed_bytes": "Offset up to which the log is on the disk",
            "tandem_log_confirmed_bytes": "Offset up to which messages can be read",
            "tandem_confirm_lag_bytes": "Bytes of the log that are not confirmed yet",
            "tandem_confirm_lag_seconds": "How long the oldest of them has been stored",
            "tandem_log_bad_bytes": "Bytes of the log that are known to be bad",
            "tandem_consumer_past_end_messages": "How far a group is past the ends of queues",
            "tandem_queues": "Queues that the store has",
            "tandem_connections": "Connections of clients and nodes",
            "tandem_held_pulls": "Pulls that wait for messages",
            "tandem_grpc_connections": "Connections of gRPC clients",
            "tandem_grpc_open_calls": "Calls of gRPC that are not answered yet, by method",
            "tandem_waiting_puts": "Puts that wait for disks or replicas",
            "tandem_disk_used_bytes": "Of the file system that the next file of the log goes to",
            "tandem_disk_usable_bytes": "Of the same, what is left",
            "tandem_figures_seconds": "How long it took to collect these figures",
            "tandem_series_left_out": "Series of a family beyond metrics.series_max",
            "tandem_broker_running": "1 if the broker of the node is open, else 0",
            "process_resident_memory_bytes": "Memory of the process",
            "process_open_fds": "Open files and connections of the process",
            "process_max_fds": "How many there may be",
            "process_start_time_seconds": "When the process began, in seconds since 1970",
        },
    ),
    **_of(
        Base.OURS,
        Kind.COUNTER,
        {
            "tandem_acks_total": "Puts that waited, by what they waited for and how that ended",
            "tandem_puts_refused_total": "Puts that the store did not take",
            "tandem_requests_refused_total": "Requests answered with an error, by its code",
            "tandem_requests_not_served_total": "Requests whose code is not served",
            "tandem_request_rounds_total": "Rounds of requests, and of what a node does by itself",
            "tandem_grpc_calls_total": "Calls of gRPC, by method and by how they ended",
            "tandem_pulls_found_total": "Pulls that were given messages",
            "tandem_pulls_missed_total": "Pulls that were answered without one",
            "tandem_messages_sent_back_total": "Messages that consumers gave back",
        },
    ),
    **_of(
        Base.OURS,
        Kind.COUNTER,
        {
            "tandem_late_keep_alives_total": (
                "Keep-alives that were late because the process was not run"
            ),
            "tandem_elections_won_total": "Times that the node became master since it began",
            "tandem_node_rounds_total": "Times that the store was opened since the node began",
            "tandem_otlp_exports_total": "Exports to the collector, by how they ended",
            "process_cpu_seconds_total": "Processor time of the process",
            "process_major_page_faults_total": "Times that it waited for a page from a disk",
        },
        is_of_process=True,
    ),
    **_of(
        Base.OURS,
        Kind.HISTOGRAM,
        {"tandem_loop_late_seconds": "How late a task goes on that slept for 0.1 s"},
        is_of_process=True,
    ),
    **_of(
        Base.OURS,
        Kind.HISTOGRAM,
        {
            "tandem_replication_seconds": "How long puts waited for replicas",
            "tandem_flush_wait_seconds": "How long puts waited for the disk of the master",
            "tandem_disk_sync_seconds": "How long a sync of a file took",
            "tandem_grpc_call_seconds": "How long calls of gRPC took, by method",
        },
    ),
    **_of(
        Base.EXPORTER,
        Kind.GAUGE,
        {
            "rocketmq_broker_tps": "Messages that came, a second, in the last minute",
            "rocketmq_broker_qps": "Messages that were given out, a second",
            "rocketmq_producer_tps": "Messages that came into a topic, a second",
            "rocketmq_producer_message_size": "Bytes of records that came into a topic, a second",
            "rocketmq_producer_offset": "Sum of the ends of the queues of a topic",
            "rocketmq_consumer_tps": "Messages that a group was given, a second",
            "rocketmq_consumer_message_size": "Bytes that a group was given, a second",
            "rocketmq_consumer_offset": "Sum of the offsets of a group in a topic",
            "rocketmq_send_back_nums": "Messages that a group gave back, a second",
            "rocketmq_group_diff": "Messages that a group has not consumed yet",
            "rocketmq_group_get_latency_by_storetime": (
                "How long the oldest of them has been stored, in milliseconds"
            ),
            **{f"{RUNTIME}pmdt_{step}": f"Puts that took {step}" for step in PUT_STEPS},
            **{
                f"{RUNTIME}{what}_tps{seconds}": f"{what} a second, in the last {seconds} s"
                for what in ("put", "getfound", "getmiss", "gettotal", "gettransfered")
                for seconds in (10, 60, 600)
            },
            **{
                f"{RUNTIME}{name}": f"{name} of GET_BROKER_RUNTIME_INFO"
                for name in (
                    "putmessage_times_total",
                    "put_message_size_total",
                    "put_message_average_size",
                    "putmessage_failed_times",
                    "putmessage_entire_time_max",
                    "get_message_entire_time_max",
                    "put_latency_99",
                    "put_latency_999",
                    "msg_puttotal_yesterdaymorning",
                    "msg_puttotal_todaymorning",
                    "msg_put_total_today_now",
                    "msg_gettotal_yesterdaymorning",
                    "msg_gettotal_todaymorning",
                    "msg_gettotal_today_now",
                    "dispatch_behind_bytes",
                    "commitlog_minoffset",
                    "commitlog_maxoffset",
                    "commitlog_disk_ratio",
                    "consumequeue_disk_ratio",
                    "commitlogdir_capacity_total",
                    "commitlogdir_capacity_free",
                    "remain_howmanydata_toflush",
                    "earliest_message_timestamp",
                )
            },
        },
    ),
}

FAMILY_OF: Final[dict[str, str]] = {
    sample: name for name, family in FAMILIES.items() for sample in sample_names(name, family)
}
"""The family of each sample."""
