"""The users of the table, made at a cluster of ours or at RocketMQ."""

import time
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from tandem.client import BlockingAdmin, ClientError, ClusterAccess
from tandem.wire.access_control import PolicyEntryInfo

KNOWN_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.1


class Keys(NamedTuple):
    """Who signs, and with what."""

    access_key: str
    secret_key: str


Role = Literal["producer", "consumer", "application", "tools"]

KEYS: Final[Mapping[Role, Keys]] = {
    "producer": Keys("table-producer", "secret-of-table-producer"),
    "consumer": Keys("table-consumer", "secret-of-table-consumer"),
    "application": Keys("table", "secret-of-table"),
    "tools": Keys("table-tools", "secret-of-table-tools"),
}

RIGHTS: Final[Mapping[Role, Mapping[str, list[str]]]] = {
    "producer": {"Topic:*": ["Pub", "Create"]},
    "consumer": {"Topic:*": ["Sub"], "Group:*": ["Sub"]},
    "application": {"Topic:*": ["Pub", "Sub", "Create"], "Group:*": ["Sub"]},
}
"""What each needs, and nothing else. The tools are a Super."""


def make_users(access: ClusterAccess) -> None:
    """Make one for each role. All nodes know them when this returns.

    Raises:
        TimeoutError: One does not.
    """
    with BlockingAdmin(access) as admin:
        for role, rights in RIGHTS.items():
            admin.create_user(*KEYS[role])
            entries = [
                PolicyEntryInfo(resource, actions, None, "Allow")
                for resource, actions in rights.items()
            ]
            admin.grant(KEYS[role].access_key, entries)
        admin.create_user(*KEYS["tools"], is_super=True)
    deadline = time.monotonic() + KNOWN_SECONDS_MAX
    # Nodes learn of changes in their order: who knows the last user knows everything.
    for server in access.addresses:
        while not _knows_the_last(server, access):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{server} does not know the users of the table")
            time.sleep(POLL_SECONDS)  # noqa: TID251 - waits for other processes


def _knows_the_last(server: str, access: ClusterAccess) -> bool:
    as_tool = ClusterAccess([server], *KEYS["tools"], signatures="any", tls=access.tls)
    with BlockingAdmin(as_tool) as admin:
        try:
            admin.cluster_info()
        except ClientError:
            return False
    return True
