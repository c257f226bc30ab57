"""What requests do to what, and who has to be trusted for it.

Each request declares its access where it is handled; see `node.security.request`.
"""

from __future__ import annotations

import enum
from typing import Final


class Standing(enum.IntEnum):
    """Who sends a request. A higher standing may do everything that the lower ones may."""

    STRANGER = 0
    """Anybody who reaches the port: nothing is known of clients yet."""
    ADMITTED = 1
    """A RocketMQ broker that the cluster file names, known by its address."""
    OPERATOR = 2
    """Signs as RocketMQ's tools do, with the key that is made of the cluster's secret for them."""
    NODE = 3
    """Knows the secret of the cluster: a node, or an operator who has the file."""


class Resource(enum.Enum):
    """What a request is about."""

    MESSAGES = "messages"
    TOPICS = "topics"
    ORDINARY_TOPICS = "ordinary topics"
    SYSTEM_TOPICS = "topics of the system"
    GROUPS = "consumer groups"
    OFFSETS = "consumer offsets"
    CLIENTS = "clients"
    ROUTES = "routes"
    VALUES = "values that operators keep at a name server"
    REPLICATION = "replication"
    LOG = "the log"
    BROKER = "the broker itself"
    USERS = "users"
    SEALED_USERS = "sealed secrets of users"


class Action(enum.Enum):
    """What a request does to it."""

    READ = "read"
    WRITE = "write"
    ORDER = "order"


Access = tuple[Resource, Action]

NEEDED: Final[dict[Access, Standing]] = {
    (Resource.ROUTES, Action.WRITE): Standing.ADMITTED,
    (Resource.ROUTES, Action.ORDER): Standing.OPERATOR,
    (Resource.BROKER, Action.ORDER): Standing.OPERATOR,
    (Resource.USERS, Action.READ): Standing.OPERATOR,
    (Resource.USERS, Action.ORDER): Standing.OPERATOR,
    (Resource.SYSTEM_TOPICS, Action.WRITE): Standing.OPERATOR,
    (Resource.SEALED_USERS, Action.READ): Standing.NODE,
    (Resource.REPLICATION, Action.ORDER): Standing.NODE,
    (Resource.LOG, Action.READ): Standing.NODE,
    (Resource.LOG, Action.ORDER): Standing.NODE,
}
"""Who has to be trusted, where not everybody is."""


def needed(access: Access) -> Standing:
    """Return the least standing that is enough."""
    return NEEDED.get(access, Standing.STRANGER)


USER_REMEDY: Final = (
    "This cluster asks who sends a request: give the client an access key and a secret key"
    " (`tandem user create NAME` makes both)"
)

SEAL_REMEDY: Final = (
    "A signature of RocketMQ's is not taken without TLS here (security.signatures: replay_proof),"
    " for who listens can send it again: use TLS, or a client that seals its requests"
)

REMEDY: Final = (
    "it is taken only from those who know the secret of the cluster: give the cluster file with"
    " --config, on a machine and as a user that may read its secret file"
)

TOOL_REMEDY: Final = (
    "it is taken only from those who know the secret of the cluster: `tandem cluster credentials`"
    " prints what RocketMQ's tools need, for conf/tools.yml; Python's clients take --config"
)
