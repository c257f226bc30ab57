"""What a start of a node would refuse, found without starting it, and without writing anything.

Everything is asked of what a start asks: the cluster file, the secret, the certificates, the ports,
the directory. What only an open store shows (damage, files of another size) is not found here.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path
from typing import Final

import msgspec
import trio

from node.errors import ConfigError, NodeError
from node.run import check_packages
from node.security.certificates import Certificates
from node.security.exposure import check_exposure, has_classic_links
from store.machine.errors import AddressInUseError, NetworkError
from store.machine.machine import Machine
from tandem.cluster_file.cluster_config import ClusterConfig, NodeConfig
from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.secret_file import SecretFault, SecretFileError, read_secret
from tandem.coordinator.client import connect
from tandem.coordinator.interface import CoordinatorError, CoordinatorRefusedError
from tandem.data_file import lock_holder
from tandem.wire.group_state import GroupKeys

CONFIG: Final = 2
BUSY: Final = 3
STORE: Final = 4
"""The exit statuses of a start that is refused."""

COORDINATOR_SECONDS_MAX: Final = 3.0
"""How long the coordinator may take to answer; a start waits for it for as long as it takes."""

OPEN_FILES_MIN: Final = 16_384
"""Fewer are enough for a small node: each connection and each file of the store takes one."""

FILES_BESIDE: Final = 1_024
"""Of the log, the index, and all else that is open."""

_STAND_IN: Final = "0" * 64
"""In place of a secret that the first start makes."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing about one node. A start ends with `exit_status`; 0: it starts all the same."""

    node: str
    subject: str
    text: str
    exit_status: int = 0


def files_wanted(connections_max: int) -> int:
    """Return how many open files let a node have all its connections.

    Broker and name server have `connections_max` each, and files of queues take up to half of what
    a process may have.
    """
    return 4 * connections_max + FILES_BESIDE


async def check_start(
    cluster: ClusterConfig, name: str, machine: Machine, *, open_files: int
) -> list[Finding]:
    """Return what would become of a start of a node, the worst first; nothing if all is well.

    Args:
        cluster: The file, read and checked.
        name: The node.
        machine: Where it would run.
        open_files: How many a process may have open here.

    Raises:
        ClusterConfigError: There is no such node.
    """
    found = _Findings(name)
    config = _with_secret(cluster, found).node(name)
    _check_settings(config, machine, found)
    pid = lock_holder(config.directory / "lock") if _may_enter(config.directory) else None
    if pid is None:
        await _check_ports(config, machine, found)
    else:
        who = f"process {pid}" if pid else "a process that cannot be named from here"
        found.note("store", f"runs already ({who}): its ports were not looked at")
    for directory in (config.directory, *config.commit_log_directories):
        _check_directory(directory, found)
    await _check_coordinator(config, found)
    wanted = max(OPEN_FILES_MIN, files_wanted(cluster.broker.connections_max))
    if open_files < wanted:
        found.note(
            "open files",
            f"a process may have {open_files} of them here, and connections_max"
            f" {cluster.broker.connections_max} wants up to {wanted}: set LimitNOFILE= of its unit,"
            f" or `ulimit -n`, to {wanted} or more",
        )
    return sorted(found.all, key=lambda each: not each.exit_status)


class _Findings:
    """What was found of one node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.all: list[Finding] = []

    def refuse(self, subject: str, text: str, exit_status: int) -> None:
        """A start ends with that."""
        finding = Finding(node=self._node, subject=subject, text=text, exit_status=exit_status)
        if finding not in self.all:
            self.all.append(finding)

    def note(self, subject: str, text: str) -> None:
        """A start does not mind."""
        self.refuse(subject, text, 0)


def _with_secret(cluster: ClusterConfig, found: _Findings) -> ClusterConfig:
    """Return the file with its secret, or with one that stands for it."""
    if cluster.secret:
        return cluster
    try:
        secret = read_secret(cluster.secret_file)
    except SecretFileError as error:
        secret = _STAND_IN
        if error.fault is not SecretFault.MISSING:
            found.refuse("secret", str(error), CONFIG)
        elif not all(ipaddress.ip_address(node.address).is_loopback for node in cluster.nodes):
            found.note(
                "secret",
                f"{cluster.secret_file} is made by the first start; nodes of several machines need"
                " the same: make one (`openssl rand -hex 32`), and copy it to all of them before",
            )
    return msgspec.structs.replace(cluster, secret=secret)


def _check_settings(config: NodeConfig, machine: Machine, found: _Findings) -> None:
    """What is asked for, and whether it may be."""
    for subject, check in (("exposure", check_exposure), ("packages", check_packages)):
        try:
            check(config)
        except ConfigError as error:
            found.refuse(subject, str(error), error.exit_status)
    if config.cluster.tls.is_on:
        try:
            Certificates(config, machine.network, machine.wall_clock_ms)
        except NodeError as error:
            found.refuse("certificates", str(error), error.exit_status)


async def _check_ports(config: NodeConfig, machine: Machine, found: _Findings) -> None:
    """Listen at every port for a moment."""
    for address, port, what in _ports(config):
        try:
            listener = await machine.network.listen(address, port)
        except AddressInUseError as error:
            found.refuse("ports", f"{what}: {error}", BUSY)
        except NetworkError as error:
            found.refuse("ports", f"{what}: {error}", 1)
        else:
            await listener.aclose()


def _ports(config: NodeConfig) -> list[tuple[str, int, str]]:
    node = config.node
    ports = [
        (node.address, node.port, "port"),
        (node.address, node.name_server_port, "name_server_port"),
    ]
    if config.is_fenced:
        ports.append((node.address, node.replication_port, "replication_port"))
    if not config.is_fenced or has_classic_links(config):
        ports.append((node.address, node.ha_port, "ha_port"))
    if config.cluster.broker.vip_channel_enable:
        ports.append((node.address, node.vip_port, "VIP channel"))
    if (place := config.metrics_place) is not None:
        ports.append((*place, "metrics"))
    return ports


def _check_directory(directory: Path, found: _Findings) -> None:
    """Look whether files can be made there, or the directory itself where there is one already."""
    at = directory
    while not _is_there(at) and at != at.parent:
        at = at.parent
    if not (at.is_dir() and os.access(at, os.W_OK | os.X_OK)):
        who = f"user {os.geteuid()}"
        found.refuse("directory", f"{directory}: {at} cannot be written by {who}", STORE)
    elif at == directory and stat.S_IMODE(at.stat().st_mode) & stat.S_IWOTH:
        found.note("directory", f"{directory} may be written by everybody: `chmod o-w` it")


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False


def _may_enter(directory: Path) -> bool:
    try:
        return os.access(directory / "lock", os.R_OK)
    except OSError:
        return False


async def _check_coordinator(config: NodeConfig, found: _Findings) -> None:
    """Ask the coordinator for the record of the group. A start waits for it if it is away."""
    if not config.is_fenced:
        return
    cluster = config.cluster
    reach = config.node.reach.get("coordinator", "")
    try:
        client = connect(cluster.coordinator, secret=cluster.secret, reach=reach)
    except (CoordinatorRefusedError, ClusterConfigError) as error:
        found.refuse("coordinator", f"the coordinator: {error}", CONFIG)
        return
    if cluster.has_embedded_coordinator:
        await client.aclose()
        return  # served by the supervisor that starts the nodes
    said = f"does not answer in {COORDINATOR_SECONDS_MAX:.0f} s"
    try:
        with trio.move_on_after(COORDINATOR_SECONDS_MAX):
            await client.read(GroupKeys(cluster.cluster.name, config.node.group).state)
            said = ""
    except CoordinatorError as error:
        said = str(error)
    finally:
        with trio.CancelScope(shield=True):
            await client.aclose()
    if said:
        found.note("coordinator", f"a start waits for it: {said}")
