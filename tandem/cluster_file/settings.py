"""The sections of a cluster file but `store:` and `coordinator:`, one record each.

The records *are* the list of settings: name, default, range and unit are together. Names are
RocketMQ's in Python's spelling, with the unit. Rules between values are in the modules of
checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct

from tandem.cluster_file.choices import (
    AckLevel,
    BrokerRole,
    ClientAccess,
    ClientAuth,
    GroupKind,
    LogFormat,
    LogLevel,
    TLSMode,
)
from tandem.cluster_file.ranges import Name, Port, milliseconds, size_bytes, whole_number
from tandem.tls_files import TLSFiles
from tandem.wire.frame_seal import Signatures
from tandem.wire.route import MASTER_ID
from tandem.wire.user_quota import BOUND_MAX, UserQuota

if TYPE_CHECKING:
    from pathlib import Path

HA_CLIENT_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Read buffer of a Java slave: a bigger frame hangs it. Source: DefaultHAClient."""

HA_TRANSFER_BATCH_SIZE_BYTES_MAX: Final = HA_CLIENT_BUFFER_BYTES - 12


class ClusterSettings(Struct, frozen=True):
    """`cluster:` of the file."""

    name: Name = "DefaultCluster"
    data_directory: str = "data"
    secret_file: str | None = None


class ReplicationSettings(Struct, frozen=True):
    """`replication:` of the file."""

    slave_timeout_ms: Annotated[int, milliseconds(1)] = 3_000
    ha_max_gap_not_in_sync_bytes: Annotated[int, size_bytes(1, 1 << 40)] = 268_435_456
    in_sync_replicas: Annotated[int, whole_number(1, 64, "replicas")] | None = None
    ha_transfer_batch_size_bytes: Annotated[
        int, size_bytes(1, HA_TRANSFER_BATCH_SIZE_BYTES_MAX)
    ] = 262_144
    ha_send_heartbeat_interval_ms: Annotated[int, milliseconds(1)] = 5_000
    ha_housekeeping_interval_ms: Annotated[int, milliseconds(1)] = 20_000
    ha_reconnect_interval_ms: Annotated[int, milliseconds(1)] = 5_000
    sync_from_last_file: bool = False
    check_crc_on_append: bool = True


class BrokerSettings(Struct, frozen=True):
    """`broker:` of the file."""

    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    default_topic_queue_nums: Annotated[int, whole_number(1, 1024, "queues")] = 8
    register_broker_interval_ms: Annotated[int, milliseconds(10)] = 5_000
    broker_expired_timeout_ms: Annotated[int, milliseconds(10)] = 20_000
    recall_message_enable: bool = False
    priority_order_asc: bool = True
    """Whether pops of a topic with priorities get the highest queue first, or the lowest."""
    pop_from_retry_probability_for_priority: Annotated[int, whole_number(0, 100, "percent")] = 0
    """How often they look first at what comes again there."""
    store_reply_message_enable: bool = True
    slave_synchronize_interval_ms: Annotated[int, milliseconds(10)] = 3_000
    enable_property_filter: bool = False
    """Whether consumers may filter by SQL92. RocketMQ's own default, for the same reason: it is the
    broker that does the work."""
    enable_calc_filter_bit_map: bool = False
    """Whether messages are put to all registered filters as they are stored; needs extensions."""
    connections_max: Annotated[int, whole_number(1, 65_536, "connections")] = 1_024
    vip_channel_enable: bool = False
    """Whether brokers listen at their port - 2 as well, as RocketMQ's do."""
    grpc_enable: bool = False
    """Whether clients that speak gRPC, RocketMQ's newer ones, are served at the same port."""
    stop_grace_ms: Annotated[int, milliseconds(0)] = 3_000
    reject_transaction_message: bool = False
    transaction_check_interval_ms: Annotated[int, milliseconds(10)] = 30_000
    transaction_timeout_ms: Annotated[int, milliseconds(0)] = 6_000
    transaction_check_max: Annotated[int, whole_number(1, 1_000, "checks")] = 15


class LoggingSettings(Struct, frozen=True):
    """`logging:` of the file. It may be another on each machine."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT
    rotate_bytes: Annotated[int, size_bytes(65_536, 1 << 40)] = 16_777_216
    rotate_count: Annotated[int, whole_number(1, 1_000, "older files")] = 4


class MetricsSettings(Struct, frozen=True):
    """`metrics:` of the file: what each node serves by HTTP of itself, and what it exports."""

    port: Port | None = None
    """None: nothing."""
    address: str | None = None
    """Where every node listens; None: at its own address if that is on loopback, else 127.0.0.1."""
    exporter_names: bool = False
    """Whether numbers have the names of rocketmq-exporter, too."""
    series_max: Annotated[int, whole_number(100, 100_000, "series")] = 10_000
    """Of one name."""
    allow_unauthenticated: bool = False
    """Whether it may be beyond this machine though it asks for no certificate."""
    allow_in_clear: bool = False
    """Whether it may be beyond this machine without TLS, and exports go there without."""
    otlp_endpoint: str | None = None
    """The URL of an OpenTelemetry collector; without a path, /v1/metrics there. None: none."""
    otlp_interval_ms: Annotated[int, milliseconds(1_000, 3_600_000)] = 60_000
    otlp_headers_file: str | None = None
    """Lines of `Name: value` for each export, a token for example."""
    otlp_ca_file: str | None = None
    """What the collector's certificate is signed with; None: what the system trusts."""


class SecuritySettings(Struct, frozen=True):
    """`security:` of the file."""

    clients: ClientAccess = ClientAccess.OPEN
    """What is asked of clients: nothing, who they are, or what they may, too."""
    signatures: Signatures = Signatures.ANY
    """Which signatures are good without TLS."""
    allow_unauthenticated: bool = False
    """Whether a node may listen beyond this machine though it does not ask clients who they are."""
    allow_in_clear: bool = False
    """Whether a node that asks for users may listen beyond this machine without TLS."""
    authenticate_log_bytes: bool | None = None
    """Whether links of fenced groups say the digest of the log's bytes, which costs throughput.

    None: unless all nodes of the group are at loopback addresses."""
    classic_ha_in_clear: bool = False
    """Whether the links of classic groups and learners, which know no TLS, may leave this machine
    though `tls.mode` is enforcing."""
    user_connections_max: Annotated[int, whole_number(1, 65_536, "connections")] | None = None
    """Of each user without a bound of its own, at each node; so are the next three. None: none."""
    user_requests_per_second: (
        Annotated[int, whole_number(1, BOUND_MAX, "requests a second")] | None
    ) = None
    user_bytes_per_second: Annotated[int, whole_number(1, BOUND_MAX, "bytes a second")] | None = (
        None
    )
    user_bytes_in_flight_max: Annotated[int, size_bytes(1, BOUND_MAX)] | None = None
    rocketmq_brokers: list[str] = []
    """RocketMQ's own brokers that may register, as NAME@ADDRESS; learners need no entry."""

    @property
    def user_quota(self) -> UserQuota:
        """What a user may take of each node that has no bounds of its own."""
        return UserQuota(
            self.user_connections_max,
            self.user_requests_per_second,
            self.user_bytes_per_second,
            self.user_bytes_in_flight_max,
        )

    @property
    def admitted_brokers(self) -> frozenset[tuple[str, str]]:
        """Their names and addresses."""
        pairs = (entry.rpartition("@") for entry in self.rocketmq_brokers)
        return frozenset((name, address) for name, _, address in pairs)


class TLSSettings(Struct, frozen=True):
    """`tls:` of the file. In the names of files `{node}` is the name of the node."""

    mode: TLSMode = TLSMode.DISABLED
    ca_file: str = "tls/ca.pem"
    certificate_file: str = "tls/{node}.pem"
    key_file: str = "tls/{node}.key"
    key_password_file: str | None = None
    client_auth: ClientAuth = ClientAuth.NONE

    @property
    def is_on(self) -> bool:
        """Whether anybody speaks TLS."""
        return self.mode is not TLSMode.DISABLED

    def files(self, name: str, directory: Path) -> TLSFiles:
        """Return the files of a node, or of a client; relative paths count from `directory`."""

        def path_of(file: str) -> str:
            return str(directory / file.replace("{node}", name)) if file else ""

        return TLSFiles(
            ca_file=path_of(self.ca_file),
            certificate_file=path_of(self.certificate_file),
            key_file=path_of(self.key_file),
            key_password_file=path_of(self.key_password_file or ""),
        )


class GroupSettings(Struct, frozen=True):
    """One entry of `groups:`; its key is the broker name that clients see."""

    kind: GroupKind = GroupKind.CLASSIC
    broker_role: BrokerRole = BrokerRole.SYNC_MASTER
    min_isr: Annotated[int, whole_number(1, 64, "replicas, the master included")] = 2
    ack_level: AckLevel = AckLevel.WRITTEN
    learners: list[str] = []
    master_address: str | None = None
    """`host:port` at which the master of the moment listens as well, and which clients get."""


class NodeSettings(Struct, frozen=True):
    """One entry of `nodes:`.

    `address` is more than a place: the replication wire carries no identity, so a slave dials from
    its own address and the master knows it by that.
    """

    name: Name
    group: Name
    broker_id: Annotated[int, whole_number(0, 1_000_000, "a broker id")]
    address: str
    port: Port = 10_911
    ha_port: Port = 10_912
    name_server_port: Port = 9_876
    replication_port: Port = 10_913
    metrics_port: Port | None = None
    """None: `metrics.port`."""
    directory: str | None = None
    store_path_commit_log: str | None = None
    reach: dict[str, str] = {}

    @property
    def is_master(self) -> bool:
        """Whether the file names this node as the master of its group."""
        return self.broker_id == MASTER_ID

    @property
    def vip_port(self) -> int:
        """The second port of a broker. Source: RocketMQ 5.3.3, MixAll.brokerVIPChannel."""
        return self.port - 2

    @property
    def broker_address(self) -> str:
        """`host:port` under which clients find this node."""
        return f"{self.address}:{self.port}"
