"""What replication has to know of cluster.yaml. Times in milliseconds, sizes in bytes."""

import msgspec

from ha.link.limits import TRANSFER_BODY_BYTES_DEFAULT
from tandem.wire.message import Host


class SlaveNode(msgspec.Struct, frozen=True):
    """A slave of the group: its node name, and the address from which it dials."""

    name: str
    address: str


class HAConfig(msgspec.Struct, frozen=True):
    """Settings of one node. Names and, unless noted, defaults are RocketMQ's."""

    name: str
    address: str
    """Own address: listened on by a master, dialled from by a slave."""

    ha_port: int
    """Where a master listens; unused on a slave."""

    master: Host | None = None
    """HA address and port of the group's master; None if this node is the master."""

    master_for_clients: str = ""
    """Name and client address of the master, for a client that sends to a slave."""

    slaves: tuple[SlaveNode, ...] = ()
    """The group's slaves; only their addresses may connect."""

    is_sync_master: bool = False
    """Whether a put waits for slaves; broker_role SYNC_MASTER."""

    slave_timeout_ms: int = 3_000
    """How long every put waits that has to; `submit` is given deadlines no nearer than that."""

    ha_max_gap_not_in_sync_bytes: int = 256 * 1024 * 1024
    in_sync_replicas: int | None = None
    """None: the contract of RocketMQ 4. RocketMQ 5 has 1, which waits for nobody."""

    ha_transfer_batch_size_bytes: int = TRANSFER_BODY_BYTES_DEFAULT
    ha_send_heartbeat_interval_ms: int = 5_000
    ha_housekeeping_interval_ms: int = 20_000
    ha_reconnect_interval_ms: int = 5_000
    sync_from_last_file: bool = False
    """What an empty slave gets. RocketMQ always sends the last file only."""

    check_crc_on_append: bool = True
