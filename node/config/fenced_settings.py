"""Settings of fenced groups and of their coordinator, and what they mean to each other.

Reading one value is `yaml_reader.py`; the rest of `cluster.yaml` is `node_config.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from msgspec import Struct

from ha.fenced.config import AckLevel
from node.config.yaml_reader import milliseconds, whole_number

if TYPE_CHECKING:
    from node.config.node_config import ClusterConfig, GroupSettings, NodeSettings
    from node.config.yaml_reader import Reader

COORDINATOR: Final = "coordinator"
"""How `reach` names it."""

SECRET_BYTES_MIN: Final = 16


class GroupKind(StrEnum):
    """What happens to a group that loses its master."""

    CLASSIC = "classic"
    """RocketMQ's master and slaves: the master is written in the file, nobody replaces it."""
    FENCED = "fenced"
    """The nodes elect a master; a lost one is replaced within seconds."""


class CoordinatorKind(StrEnum):
    """Who keeps the records that decide."""

    EMBEDDED = "embedded"
    """The supervisor of a local cluster."""
    ETCD = "etcd"


class CoordinatorSettings(Struct, frozen=True):
    """`coordinator:` of the file. Classic groups need none."""

    kind: CoordinatorKind = CoordinatorKind.EMBEDDED
    address: str = "127.0.0.1"
    port: Annotated[int, whole_number(1, 65_535, "a TCP port")] = 10_920
    endpoints: list[str] = []
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    lease_ttl_ms: Annotated[int, milliseconds(2_000, 600_000)] = 5_000


def check_coordinator(reader: Reader, settings: CoordinatorSettings) -> None:
    """Complain about what does not fit together in `coordinator:`."""
    if settings.kind is CoordinatorKind.EMBEDDED:
        if settings.endpoints:
            reader.complain(
                "coordinator.endpoints", "are of etcd; give kind: etcd, or take them out"
            )
        return
    if not settings.endpoints:
        reader.complain(
            "coordinator.kind",
            "etcd needs its addresses; give endpoints: [http://127.0.0.1:2379]",
        )
    for endpoint in settings.endpoints:
        if wrong := _what_is_wrong(endpoint):
            reader.complain(
                "coordinator.endpoints",
                f"{endpoint!r} {wrong}; give http://HOST:PORT or https://HOST:PORT",
            )
    if len({urlsplit(endpoint).scheme for endpoint in settings.endpoints}) > 1:
        reader.complain(
            "coordinator.endpoints",
            "some are http:// and some https://, but one password and one CA go to all of them;"
            " give one kind",
        )
    if settings.ca_file and any(each.startswith("http://") for each in settings.endpoints):
        reader.complain(
            "coordinator.ca_file", "is for https://, and an endpoint is http://: nothing is checked"
        )
    if bool(settings.user) != bool(settings.password_file):
        reader.complain("coordinator.user", "needs a password_file, and that one a user")
    if bool(settings.cert_file) != bool(settings.key_file):
        reader.complain("coordinator.cert_file", "needs a key_file, and that one a cert_file")


def _what_is_wrong(endpoint: str) -> str:
    """Return why an endpoint cannot be dialled, in words; empty if it can."""
    try:
        url = urlsplit(endpoint)
        port = url.port
    except ValueError:
        return "is not an address of etcd"
    if url.scheme not in ("http", "https") or not url.hostname:
        return "is not an address of etcd"
    if not port:
        return "has no port (etcd's own is 2379)"
    if url.path.strip("/") or url.query or url.fragment or url.username:
        return "has more than a host and a port"
    return ""


def check_fenced_group(
    reader: Reader, config: ClusterConfig, group: str, members: list[tuple[int, NodeSettings]]
) -> None:
    """Complain about what a fenced group cannot be."""
    settings = config.groups[group]
    if not members:
        reader.complain(f"groups.{group}", "has no node; add one under nodes:")
    if settings.min_isr > len(members) > 0:
        reader.complain(
            f"groups.{group}.min_isr",
            f"{settings.min_isr} replicas cannot be in sync: the group has {len(members)} nodes;"
            f" give at most {len(members)}",
        )
    for index, node in members:
        if node.is_master:
            reader.complain(
                f"nodes[{index}].broker_id",
                "0 is the master of the moment, and a fenced group elects it; give 1 or more",
            )
    _check_what_fenced_groups_lack(reader, config, group, settings)


def _check_what_fenced_groups_lack(
    reader: Reader, config: ClusterConfig, group: str, settings: GroupSettings
) -> None:
    if settings.broker_role == "ASYNC_MASTER":
        reader.complain(
            f"groups.{group}.broker_role",
            "a fenced group answers a put once its replicas have it; producers choose otherwise"
            " message by message (WAIT=false); take it out",
        )
    if config.store.timer_wheel_enable:
        reader.complain(
            "store.timer_wheel_enable",
            f"the wheel is not replicated, so a new master of group {group} would deliver"
            " everything again; turn it off, or make the group classic",
        )
    if config.store.transient_store_pool_enable:
        reader.complain(
            "store.transient_store_pool_enable",
            f"what waits in the pool is lost with the process, but group {group} counts on it;"
            " turn it off, or make the group classic",
        )


def check_reach(reader: Reader, config: ClusterConfig) -> None:
    """Complain about `reach` entries that name nobody."""
    names = {node.name for node in config.nodes}
    for index, node in enumerate(config.nodes):
        for target in node.reach:
            if target not in {*names - {node.name}, COORDINATOR}:
                reader.complain(
                    f"nodes[{index}].reach",
                    f"{target!r} is neither another node nor '{COORDINATOR}'",
                )


def check_classic_group(reader: Reader, group: str, settings: GroupSettings) -> None:
    """Complain about settings that only a fenced group has a use for."""
    if settings.ack_level is AckLevel.FLUSHED:
        reader.complain(
            f"groups.{group}.ack_level",
            "a classic slave does not say what it has flushed; make the group fenced",
        )
    if settings.learners:
        reader.complain(
            f"groups.{group}.learners",
            "a classic group lists its slaves under nodes:; make the group fenced",
        )
