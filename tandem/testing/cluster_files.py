"""The cluster file of a test: small, quick, and at addresses of its own."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.drill.proxied_pair import ProxiedPair
from tandem.testing.addresses import Network, random_network

GROUP: Final = "broker-a"

NODES_MAX: Final = 9
"""So that each pair of nodes has an address of the same network for its proxy."""

_COORDINATOR_NUMBER: Final = 254
_FIRST_NODE_NUMBER: Final = 201
_MASTER_NUMBER: Final = 200

_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "store": {
        "mapped_file_size_commit_log_bytes": 1_048_576,
        "mapped_file_size_consume_queue_bytes": 20_000,
        "max_message_size_bytes": 65_536,
        # 0.4 MB a file and not 42.
        "max_hash_slot_num": 5_000,
        "max_index_num": 20_000,
    },
    # Short, because a test waits for what a person would not notice.
    "replication": {"ha_reconnect_interval_ms": 100},
    "broker": {"register_broker_interval_ms": 500, "slave_synchronize_interval_ms": 500},
}


Kind = Literal["classic", "fenced"]

Settings = Mapping[str, Mapping[str, Any]]
"""Sections of a cluster file, such as `{"replication": {"slave_timeout_ms": 500}}`."""


def write_cluster_file(
    directory: Path,
    slaves_count: int,
    settings: Settings,
    *,
    kind: Kind = "classic",
    network: Network | None = None,
    proxied: bool = False,
    has_master_address: bool = False,
) -> Path:
    """Write a `cluster.yaml` for a cluster of one group; return its path.

    A fenced group has `1 + slaves_count` nodes, too. Without a `network`, it is one that nobody
    else is likely to have. `proxied`: the nodes dial each other by way of `proxied_pairs`.
    `has_master_address`: a fenced group has one.
    """
    network = network or random_network()
    is_fenced = kind == "fenced"
    sections = {
        name: {**_SETTINGS.get(name, {}), **settings.get(name, {})}
        for name in {**_SETTINGS, **settings}
    }
    group: dict[str, Any] = {"kind": kind}
    if not is_fenced:
        group["broker_role"] = "SYNC_MASTER"
    else:
        # A write needs two of three. A lone node is all that there is.
        group["min_isr"] = min(2, 1 + slaves_count)
        if has_master_address:
            group["master_address"] = f"{network.address(_MASTER_NUMBER)}:{network.ports.client}"
        own = {"address": network.address(_COORDINATOR_NUMBER), "port": network.ports.coordinator}
        sections["coordinator"] = {**own, **sections.get("coordinator", {})}
    ids = list(_broker_ids(kind, slaves_count))
    pairs = list(_pairs(network, ids, kind)) if proxied else []
    nodes = [
        {
            "name": f"{GROUP}-{broker_id}",
            "group": GROUP,
            "broker_id": broker_id,
            "address": _address(network, place),
            "port": network.ports.client,
            "ha_port": network.ports.ha,
            "replication_port": network.ports.replication,
            "name_server_port": network.ports.name_server,
            "reach": {
                pair.target: pair.listen_address
                for pair in pairs
                if pair.source == f"{GROUP}-{broker_id}"
            },
        }
        for place, broker_id in enumerate(ids)
    ]
    groups: dict[str, Any] = sections.get("groups", {})
    given = groups.get(GROUP, {})
    # What is no group is complained about by who reads the file.
    own_group = group | given if isinstance(given, dict) else given
    content = {
        **sections,
        "groups": groups | {GROUP: own_group},
        "nodes": nodes,
    }
    file = directory / "cluster.yaml"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(content)))  # JSON is YAML
    return file


def proxied_pairs(network: Network, slaves_count: int, kind: Kind) -> list[ProxiedPair]:
    """Who dials whom by way of which address, in a cluster file that is `proxied`."""
    return list(_pairs(network, list(_broker_ids(kind, slaves_count)), kind))


def _broker_ids(kind: Kind, slaves_count: int) -> range:
    # Id 0 is the master of a classic group. In a fenced one any node may be master.
    first = 1 if kind == "fenced" else 0
    return range(first, first + 1 + slaves_count)


def _address(network: Network, place: int) -> str:
    return network.address(_FIRST_NODE_NUMBER + place)


def _pairs(network: Network, ids: Sequence[int], kind: Kind) -> Iterator[ProxiedPair]:
    """All pairs of nodes, and of each node of a fenced group with the coordinator."""
    ports = network.ports
    served: tuple[int, ...] = (ports.client, ports.ha, ports.name_server)
    if kind == "fenced":
        served = (*served, ports.replication)
    for row, source in enumerate(ids):
        targets = [
            (f"{GROUP}-{target}", _address(network, place), served)
            for place, target in enumerate(ids)
            if target != source
        ]
        if kind == "fenced":
            address = network.address(_COORDINATOR_NUMBER)
            targets.append((COORDINATOR, address, (ports.coordinator,)))
        for column, (target_name, target_address, target_ports) in enumerate(targets):
            yield ProxiedPair(
                source=f"{GROUP}-{source}",
                source_address=_address(network, row),
                target=target_name,
                target_address=target_address,
                listen_address=network.address(1 + 10 * row + column),
                ports=target_ports,
            )
