"""A whole cluster file, checked, and the view that one of its nodes has of it."""

from __future__ import annotations

import hashlib
import ipaddress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tandem.cluster_file.choices import BrokerRole, CoordinatorKind, GroupKind
from tandem.cluster_file.coordinator_settings import COORDINATOR, CoordinatorSettings
from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.secret_file import SECRET_NAME, make_secret, read_secret
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    LoggingSettings,
    MetricsSettings,
    NodeSettings,
    ReplicationSettings,
    SecuritySettings,
    TLSSettings,
)
from tandem.cluster_file.store_settings import StoreSettings
from tandem.tls_files import CLIENT_NAME, TLSFiles
from tandem.wire.feature_level import LEVEL_MAX

MULTI_PATH_SPLITTER: Final = ","
"""Between the directories of one node's commit log. Source: MixAll.MULTI_PATH_SPLITTER."""


class ClusterConfig(Struct, frozen=True):
    """A whole `cluster.yaml`, checked."""

    file: Path
    cluster: ClusterSettings
    store: StoreSettings
    replication: ReplicationSettings
    broker: BrokerSettings
    groups: dict[str, GroupSettings]
    nodes: tuple[NodeSettings, ...]
    coordinator: CoordinatorSettings = CoordinatorSettings()
    """With absolute paths."""
    logging: LoggingSettings = LoggingSettings()
    security: SecuritySettings = SecuritySettings()
    tls: TLSSettings = TLSSettings()
    metrics: MetricsSettings = MetricsSettings()
    secret: str = ""
    """Content of a `secret_file` that the cluster file names; see `with_secret` for all others."""

    @property
    def data_directory(self) -> Path:
        """Where the nodes keep their directories; a relative one counts from the file."""
        return self.file.parent / self.cluster.data_directory

    @property
    def secret_file(self) -> Path:
        """The file with the secret: the one that is named, or that in the data directory."""
        if self.cluster.secret_file is None:
            return self.data_directory / SECRET_NAME
        return self.file.parent / self.cluster.secret_file

    def with_secret(self) -> ClusterConfig:
        """Return the same with its secret, which is made if there is none.

        Raises:
            SecretFileError: It cannot be read, or is open to others.
        """
        if self.secret:
            return self
        if self.cluster.secret_file is None:
            make_secret(self.secret_file)
        return msgspec.structs.replace(self, secret=read_secret(self.secret_file))

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits over everything that must be the same on all machines."""
        nodes = [
            msgspec.structs.replace(
                node, directory=None, store_path_commit_log=None, reach={}, metrics_port=None
            )
            for node in self.nodes
        ]
        agreed = (
            self.cluster.name,
            self.store,
            self.replication,
            self.broker,
            self.groups,
            nodes,
            self.coordinator.kind,
            self.coordinator.lease_ttl_ms,
            self.security,
        )
        return hashlib.sha256(msgspec.json.encode(agreed, order="sorted")).hexdigest()[:12]

    @property
    def has_embedded_coordinator(self) -> bool:
        """Whether a supervisor serves the coordinator of these groups."""
        is_embedded = self.coordinator.kind is CoordinatorKind.EMBEDDED
        return is_embedded and any(group.kind is GroupKind.FENCED for group in self.groups.values())

    @property
    def coordinator_tls(self) -> TLSFiles:
        """Certificates of the embedded coordinator, where TLS is spoken."""
        return self.tls.files(COORDINATOR, self.file.parent)

    @property
    def client_tls(self) -> TLSFiles | None:
        """With what clients dial the nodes; None: in clear.

        A client has a certificate of its own if one was made for it.
        """
        if not self.tls.is_on:
            return None
        files = self.tls.files(CLIENT_NAME, self.file.parent)
        if Path(files.certificate_file).exists():
            return files
        return TLSFiles(ca_file=files.ca_file)

    def node_directory(self, node: NodeSettings) -> Path:
        """Store root of a node; a relative `directory` counts from the file."""
        if node.directory is None:
            return self.data_directory / node.name
        return self.file.parent / node.directory

    def commit_log_directories(self, node: NodeSettings) -> tuple[Path, ...]:
        """Where a node keeps its commit log; a relative path counts from the file."""
        if node.store_path_commit_log is None:
            return (self.node_directory(node) / "commitlog",)
        pieces = node.store_path_commit_log.split(MULTI_PATH_SPLITTER)
        return tuple(self.file.parent / piece.strip() for piece in pieces)

    def group_nodes(self, group: str) -> list[NodeSettings]:
        """All nodes of a group, master first, then by broker id."""
        members = [node for node in self.nodes if node.group == group]
        return sorted(members, key=lambda node: node.broker_id)

    def metrics_place(self, node: NodeSettings) -> tuple[str, int] | None:
        """Address and port at which a node serves its metrics; None if it does not."""
        port = node.metrics_port or self.metrics.port
        if port is None:
            return None
        is_local = ipaddress.ip_address(node.address).is_loopback
        return self.metrics.address or (node.address if is_local else "127.0.0.1"), port

    def node(self, name: str) -> NodeConfig:
        """The view of one node.

        Raises:
            ClusterConfigError: There is no such node.
        """
        for node in self.nodes:
            if node.name == name:
                return NodeConfig(cluster=self, node=node)
        known = ", ".join(node.name for node in self.nodes)
        raise ClusterConfigError(f"{self.file}: no node is named {name!r}; the file has {known}")


class NodeConfig(Struct, frozen=True):
    """What one node needs to know: the cluster, and who it is in it."""

    cluster: ClusterConfig
    node: NodeSettings
    level_max: int = LEVEL_MAX
    """The highest feature level that it knows. No setting: it is that of the program, and lower
    where an older one is simulated."""

    @property
    def directory(self) -> Path:
        """Root of this node's store."""
        return self.cluster.node_directory(self.node)

    @property
    def commit_log_directories(self) -> tuple[Path, ...]:
        """Where this node keeps its commit log."""
        return self.cluster.commit_log_directories(self.node)

    @property
    def metrics_place(self) -> tuple[str, int] | None:
        """Address and port at which this node serves its metrics; None if it does not."""
        return self.cluster.metrics_place(self.node)

    @property
    def audit_file(self) -> Path:
        """Where this node writes who has changed what; see `node.security.audit`."""
        return self.cluster.data_directory / "logs" / f"{self.node.name}.audit.log"

    @property
    def tls_files(self) -> TLSFiles:
        """Certificates of this node, where TLS is spoken."""
        return self.cluster.tls.files(self.node.name, self.cluster.file.parent)

    @property
    def group(self) -> GroupSettings:
        """Settings of this node's group."""
        return self.cluster.groups[self.node.group]

    @property
    def is_fenced(self) -> bool:
        """Whether the nodes of this group elect their master."""
        return self.group.kind is GroupKind.FENCED

    @property
    def peers(self) -> list[NodeSettings]:
        """The other nodes of the group, by broker id."""
        members = self.cluster.group_nodes(self.node.group)
        return [member for member in members if member.name != self.node.name]

    def address_of(self, other: NodeSettings) -> str:
        """The IP address under which this node dials another one."""
        return self.node.reach.get(other.name, other.address)

    @property
    def master(self) -> NodeSettings:
        """The master of this node's classic group (may be the node itself)."""
        return self.cluster.group_nodes(self.node.group)[0]

    @property
    def slaves(self) -> list[NodeSettings]:
        """The slaves of this node's group, by broker id."""
        return self.cluster.group_nodes(self.node.group)[1:]

    @property
    def broker_role(self) -> BrokerRole:
        """How the group's master answers puts with WAIT."""
        return self.cluster.groups[self.node.group].broker_role
