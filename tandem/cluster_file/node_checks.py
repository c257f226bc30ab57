"""Names, addresses, ports and directories of nodes that must not meet."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.cluster_config import MULTI_PATH_SPLITTER
from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.cluster_file.secret_file import SECRET_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from tandem.cluster_file.cluster_config import ClusterConfig
    from tandem.cluster_file.settings import NodeSettings
    from tandem.cluster_file.yaml_reader import Reader

RESERVED_NAMES: Final = (COORDINATOR, "logs", SECRET_NAME)
"""What a supervisor has beside those of the nodes; `reach` names the first, too."""


def check_nodes(reader: Reader, config: ClusterConfig) -> None:
    """Names, addresses, ports and directories that must not meet."""
    names: set[str] = set()
    directories: dict[Path, str] = {}
    sockets: dict[tuple[str, int], str] = {}
    for path, node in zip(reader.node_paths, config.nodes, strict=True):
        if node.name in RESERVED_NAMES:
            reader.complain(
                f"{path}.name",
                f"{node.name!r} is the name of something else in the data directory, and no node's;"
                " give another",
            )
        if node.name in names:
            reader.complain(f"{path}.name", f"two nodes are named {node.name!r}; rename one")
        elif (owner := directories.get(config.node_directory(node))) is not None:
            key = f"{path}.directory" if node.directory else path
            reader.complain(key, f"shares its directory with {owner}; give each its own")
        names.add(node.name)
        directories.setdefault(config.node_directory(node), node.name)
        _check_commit_log_directories(reader, config, node, path, directories)
        _check_address(reader, f"{path}.address", node.address)
        if config.broker.vip_channel_enable and node.vip_port < 1:
            reader.complain(
                f"{path}.port", f"{node.port} - 2 is no port for the VIP channel; give 3 or more"
            )
        for key in _ports(config, node):
            place = (node.address, getattr(node, key))
            if (owner := sockets.get(place)) is not None:
                reader.complain(
                    f"{path}.{key}" if f"{path}.{key}" in reader.places else path,
                    f"{key} {place[1]} at {place[0]} is already {owner}; give another",
                )
            sockets.setdefault(place, f"the {key} of {node.name}")
    _check_metrics(reader, config, sockets)
    _check_master_addresses(reader, config, sockets)


def _check_metrics(
    reader: Reader, config: ClusterConfig, sockets: dict[tuple[str, int], str]
) -> None:
    """Ports of metrics are nobody else's. Nodes on several machines may share an address there."""
    own: dict[tuple[str, tuple[str, int]], str] = {}
    for path, node in zip(reader.node_paths, config.nodes, strict=True):
        try:
            place = config.metrics_place(node)
        except ValueError:
            continue  # the address of the node is none, and was complained about
        if place is None:
            continue
        # Nodes of two addresses may be on two machines, and have a port of loopback each.
        owner = sockets.get(place) or own.get((node.address, place))
        own.setdefault((node.address, place), f"the metrics port of {node.name}")
        if owner is None:
            continue
        has_own = f"{path}.metrics_port" in reader.places
        reader.complain(
            f"{path}.metrics_port" if has_own else "metrics.port",
            f"{place[1]} at {place[0]} is already {owner}; give another",
        )


def _check_master_addresses(
    reader: Reader, config: ClusterConfig, sockets: dict[tuple[str, int], str]
) -> None:
    """Each group's is its own: what a node has for itself, it has to get back when it starts."""
    for name, group in config.groups.items():
        if group.master_address is None:
            continue
        key = f"groups.{name}.master_address"
        address, _, port = group.master_address.rpartition(":")
        if not (port.isdecimal() and port.isascii() and 0 < int(port) < 65_536):
            reader.complain(
                key, f"{group.master_address!r} is no address and port; write 10.0.0.100:10911"
            )
            continue
        _check_address(reader, key, address)
        place = (address, int(port))
        if (owner := sockets.get(place)) is not None:
            reader.complain(key, f"{group.master_address} is already {owner}; give another")
        sockets.setdefault(place, f"the master_address of {name}")


def _ports(config: ClusterConfig, node: NodeSettings) -> tuple[str, ...]:
    vip = ("vip_port",) if config.broker.vip_channel_enable else ()
    group = config.groups.get(node.group)
    if group is not None and group.kind is GroupKind.FENCED:
        return ("port", *vip, "ha_port", "name_server_port", "replication_port")
    return ("port", *vip, "ha_port", "name_server_port")


def _check_commit_log_directories(
    reader: Reader,
    config: ClusterConfig,
    node: NodeSettings,
    path: str,
    directories: dict[Path, str],
) -> None:
    """Each directory belongs to one log: two logs would take each other's files for their own."""
    if node.store_path_commit_log is None:
        return
    key = f"{path}.store_path_commit_log"
    if not all(piece.strip() for piece in node.store_path_commit_log.split(MULTI_PATH_SPLITTER)):
        reader.complain(key, "one of the paths is empty; give one, or several with ',' between")
        return
    for directory in config.commit_log_directories(node):
        if (owner := directories.get(directory)) is not None:
            reader.complain(key, f"{directory} is a directory of {owner} already; give another")
        directories.setdefault(directory, node.name)


def _check_address(reader: Reader, key: str, address: str) -> None:
    remedy = "give an IPv4 address of the machine, such as 127.0.0.1"
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        reader.complain(key, f"{address!r} is not an IP address; {remedy}")
        return
    if parsed.version != 4:
        reader.complain(
            key, f"{address} is IPv6, which clients of RocketMQ 4 cannot read; {remedy}"
        )
    elif parsed.is_unspecified or parsed.is_multicast:
        reader.complain(key, f"{address} is not the address of one machine; {remedy}")


def check_reach(reader: Reader, config: ClusterConfig) -> None:
    """Complain about `reach` entries that name nobody. Every entry of `nodes:` must be read."""
    names = {COORDINATOR, *(node.name for node in config.nodes)}
    for path, node in zip(reader.node_paths, config.nodes, strict=True):
        for target in node.reach:
            if target == node.name or target not in names:
                reader.complain(
                    f"{path}.reach",
                    f"{target!r} is neither another node nor '{COORDINATOR}'",
                )
