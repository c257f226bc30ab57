"""The settings of a shadow; `tandem shadow` writes them as JSON, see `node.shadow.command`."""

import msgspec

from tandem.tls_files import TLSFiles
from tandem.wire.acl_signature import ACCESS_KEY_FIELD, ACL_SIGNATURE_FIELD, AclKey
from tandem.wire.message import Host
from tandem.wire.remoting_command import RemotingCommand


class ShadowUser(msgspec.Struct, frozen=True):
    """Who asks name servers and the master, where RocketMQ wants to know."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"ShadowUser({self.access_key!r}, '***')"

    def signed(self, command: RemotingCommand) -> RemotingCommand:
        """Return a request with who sends it, and RocketMQ's signature.

        Source: RocketMQ 5.3.3, AclClientRPCHook.
        """
        said = {**command.ext_fields(), ACCESS_KEY_FIELD: self.access_key}
        said[ACL_SIGNATURE_FIELD] = AclKey(self.secret_key).sign(said, command.body)
        return msgspec.structs.replace(command, ext=said)


class ShadowConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Times and sizes in the units of their names; names of settings are RocketMQ's."""

    directory: str
    master: Host
    """Address and HA port of the master at the start."""

    name_servers: tuple[Host, ...] = ()
    """Asked in turn where the master is; without any, `master` is all that is known."""

    broker_name: str = ""
    """Which broker of the name servers it is; empty: the one at the address of `master`."""

    count_as_slave: bool = False
    """Acknowledge what was copied, as a slave does."""

    slave_timeout_ms: int = 3_000
    """slaveTimeout of the master: how long a put waits there for its slaves."""

    commit_log_file_bytes: int = 0
    """mappedFileSizeCommitLog of the master; 0: what the directory or the master says, or 1 GiB."""

    file_reserved_time_hours: int = 72
    delete_hours: tuple[int, ...] = (4,)
    disk_max_used_space_ratio: int = 75
    max_hash_slot_num: int = 5_000_000
    """Of an index file; RocketMQ opens the copy if it is set to the same. So is the next."""
    max_index_num: int = 20_000_000
    reconnect_interval_ms: int = 5_000
    housekeeping_interval_ms: int = 20_000
    heartbeat_interval_ms: int = 5_000
    synchronize_interval_ms: int = 10_000
    """From one copying of topics, groups and offsets to the next. Source: SlaveSynchronize."""

    tls: TLSFiles | None = None
    """With it name servers and the master's client port are asked over TLS; the log never is."""

    user: ShadowUser | None = None
    """Who signs what is asked; nothing is signed on the HA port, whose protocol knows no users."""
