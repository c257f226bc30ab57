"""What a replica of a fenced group has to know of cluster.yaml."""

from __future__ import annotations

import msgspec

from ha.link.limits import TRANSFER_BODY_BYTES_DEFAULT
from tandem.cluster_file.choices import AckLevel
from tandem.wire.feature_level import LEVEL_MAX
from tandem.wire.message import Host


class FencedPeer(msgspec.Struct, frozen=True):
    """Another node of the group, and where this node dials it."""

    name: str
    replication: Host
    """Address and port of its replication link as reached from here (a proxy may be between)."""


class FencedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one replica. Times in milliseconds, sizes in bytes."""

    cluster: str
    group: str
    name: str
    address: str
    """Own address: listened on as master, dialled from as follower."""
    replication_port: int
    client_address: str
    """`host:port` for clients, as written into the node's record."""
    directory: str
    """Root of the store: epoch file, replica file and side files are beside the log."""
    peers: tuple[FencedPeer, ...]
    min_isr: int = 2
    ack_level: AckLevel = AckLevel.WRITTEN
    secret: str = ""
    """Shared by all nodes of the group; peers prove that they know it."""
    digests_bodies: bool = True
    """Whether frames of the link say the digest of their bodies."""

    program: str = ""
    """Version of TandemMQ, for people."""
    level_max: int = LEVEL_MAX
    """The highest feature level that this node knows; lower where an older one is simulated."""

    lease_ttl_ms: int = 5_000
    keepalive_interval_ms: int = 1_000
    coordinator_poll_interval_ms: int = 1_000
    """Watches are an optimisation: keys are also read this often."""
    isr_lag_ms: int = 5_000
    """A member that has not acknowledged for so long what it was sent leaves the ISR."""
    resign_after_ms: int = 10_000
    """A master short of min_isr for so long lets another member try, if one lives."""
    resign_pause_ms: int = 30_000
    """... and takes no part in elections for this long unless nobody wins."""
    slave_timeout_ms: int = 3_000
    """How long a put waits for its replicas: then FLUSH_SLAVE_TIMEOUT."""
    ha_transfer_batch_size_bytes: int = TRANSFER_BODY_BYTES_DEFAULT
    heartbeat_interval_ms: int = 1_000
    silence_ms: int = 3_000
    """A silent link is closed after this."""
    reconnect_interval_ms: int = 200
    check_crc_on_append: bool = True
