"""Whether a node may open its ports as its cluster file says."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from node.errors import ConfigError

if TYPE_CHECKING:
    from tandem.cluster_file.cluster_config import NodeConfig


def check_exposure(config: NodeConfig) -> None:
    """Refuse to start a node that takes orders from anybody, or messages from other machines.

    Raises:
        ConfigError: It has no secret; or it listens beyond this machine without being allowed to.
    """
    cluster, node = config.cluster, config.node
    if not cluster.secret:
        raise ConfigError(
            [f"{node.name} has no secret, so it would take orders from anybody: see {cluster.file}"]
        )
    if cluster.security.allow_unauthenticated:
        return
    addresses = [node.address]
    if config.group.master_address is not None:
        addresses.append(config.group.master_address.rpartition(":")[0])
    for address in addresses:
        if not ipaddress.ip_address(address).is_loopback:
            raise ConfigError(
                [
                    f"{cluster.file}: {node.name} would listen at {address}, beyond this machine,"
                    " and it asks no client who it is: anybody there could read, write and create"
                    " topics. If only those reach it who may, set"
                    " security.allow_unauthenticated: true"
                ]
            )
