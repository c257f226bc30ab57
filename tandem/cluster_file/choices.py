"""Settings that are one of a few words. Store and replication take them as they are."""

from enum import StrEnum


class GroupKind(StrEnum):
    """What happens to a group that loses its master."""

    CLASSIC = "classic"
    """RocketMQ's master and slaves: the master is written in the file, nobody replaces it."""
    FENCED = "fenced"
    """The nodes elect a master; a lost one is replaced within seconds."""


class BrokerRole(StrEnum):
    """Whether a group's master waits for a slave before it answers a put with WAIT."""

    SYNC_MASTER = "SYNC_MASTER"
    ASYNC_MASTER = "ASYNC_MASTER"


class FlushDiskType(StrEnum):
    """When a put is answered, as far as the master's own disk is concerned: after the sync or not.

    Source: org.apache.rocketmq.store.config.FlushDiskType.
    """

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class AckLevel(StrEnum):
    """What a replica must have done with a message before its acknowledgement counts."""

    WRITTEN = "written"
    """In its page cache: survives the process, not the machine."""
    FLUSHED = "flushed"
    """On its disk."""


class CoordinatorKind(StrEnum):
    """What keeps the records that decide who is master."""

    EMBEDDED = "embedded"
    """The supervisor of a local cluster."""
    ETCD = "etcd"


class ClientAccess(StrEnum):
    """What is asked of who sends a request.

    Source: AuthConfig.authenticationEnabled and authorizationEnabled, which are two settings there.
    """

    OPEN = "open"
    """Nothing, but for orders to the cluster."""
    AUTHENTICATED = "authenticated"
    """A signature: who it is. Each user may do everything that clients may."""
    AUTHORIZED = "authorized"
    """A signature, and a right to each topic and group."""


class TLSMode(StrEnum):
    """Whether clients and nodes speak TLS. Source: org.apache.rocketmq.remoting.common.TlsMode."""

    DISABLED = "disabled"
    """Nobody does."""
    PERMISSIVE = "permissive"
    """Who wants to does; others are served in clear."""
    ENFORCING = "enforcing"
    """Everybody has to."""


class ClientAuth(StrEnum):
    """Whether clients show a certificate. Source: TlsSystemConfig.tlsServerNeedClientAuth."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class LogLevel(StrEnum):
    """From which level on lines are logged."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line of a log looks."""

    TEXT = "text"
    JSON = "json"
