"""Starts the cluster of a test, by forking, and ends it with the block or with this process.

pytest ---> fork server --- forks ---> supervisor --- forks ---> nodes
  |              `--------- forks ---> network    (proxies)
  `- lifelines: all of them end when this process ends, however it ends
"""

from __future__ import annotations

import datetime as dt
import os
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.cluster.control import Reply
from tandem.cluster.errors import OrderRefusedError, SupervisorGoneError
from tandem.cluster.forking import ForkRequest
from tandem.cluster.spec import node_environment, read_spec
from tandem.cluster_file.load import load_config
from tandem.testing.addresses import claimed_network
from tandem.testing.cluster import RunningCluster
from tandem.testing.cluster_files import (
    NODES_MAX,
    Kind,
    Settings,
    proxied_pairs,
    write_cluster_file,
)
from tandem.testing.fork_server import fork_server
from tandem.testing.network import NetworkControl
from tandem.wire.untrusted import UnreadableError, decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tandem.cluster.forking import ForkedProcess
    from tandem.cluster.spec import ClusterSpec
    from tandem.drill.proxied_pair import ProxiedPair

SLAVES_COUNT_DEFAULT: Final = 1
FENCED_NODES_COUNT_DEFAULT: Final = 3
STOP_SECONDS_MAX: Final = 30.0

DISK_MIB_MIN: Final = 4
"""Room for two files of the log, and what else there is in a store."""

_NETWORK_LOG: Final = "network"


@contextmanager
def running_cluster(
    directory: Path,
    *,
    slaves_count: int = SLAVES_COUNT_DEFAULT,
    settings: Settings | None = None,
    proxied: bool = False,
    disk_mib: int = 0,
) -> Iterator[RunningCluster]:
    """Have a cluster up in `directory` while the block runs; its nodes are in sync at the start.

    `settings` are sections of a cluster file, such as `{"replication": {"slave_timeout_ms": 500}}`;
    what they leave out is as small and quick as a test wants it. `proxied`: the nodes reach each
    other by way of proxies, which `RunningCluster.partition` and its kind need. `disk_mib`: each
    store is on a file system of that size in memory, which `RunningCluster.fill_disk` needs.
    With `{"tls": {"mode": "enforcing"}}` it has certificates; clients take `RunningCluster.access`.

    Raises:
        ValueError: Too many nodes, or too small disks.
        ModuleNotFoundError: Certificates are made with `cryptography`.
        ClusterConfigError: The settings are wrong.
        OrderRefusedError: A node did not start, or there can be no such file systems.
        WrongSystemError: This is not Linux.
    """
    with running_group(
        directory,
        kind="classic",
        nodes_count=1 + slaves_count,
        settings=settings or {},
        proxied=proxied,
        disk_mib=disk_mib,
    ) as cluster:
        yield cluster


@contextmanager
def running_fenced_cluster(
    directory: Path,
    *,
    nodes_count: int = FENCED_NODES_COUNT_DEFAULT,
    settings: Settings | None = None,
    proxied: bool = False,
    disk_mib: int = 0,
) -> Iterator[RunningCluster]:
    """Have a cluster of one fenced group up; it has a master, and all are in sync, at the start.

    Arguments and errors: as for `running_cluster`.
    """
    with running_group(
        directory,
        kind="fenced",
        nodes_count=nodes_count,
        settings=settings or {},
        proxied=proxied,
        disk_mib=disk_mib,
    ) as cluster:
        yield cluster


@contextmanager
def running_group(
    directory: Path,
    *,
    kind: Kind,
    nodes_count: int,
    settings: Settings,
    proxied: bool,
    disk_mib: int,
    has_master_address: bool = False,
) -> Iterator[RunningCluster]:
    """Have a cluster of one group up. Arguments and errors: as for `running_cluster`.

    `has_master_address`: clients reach the master of a fenced group at one address, whoever it is.
    """
    slaves_count = nodes_count - 1
    if not 1 <= nodes_count <= NODES_MAX:
        raise ValueError(f"a cluster of {nodes_count} nodes: give 1 to {NODES_MAX}")
    if disk_mib and disk_mib < DISK_MIB_MIN:
        raise ValueError(f"disk_mib is {disk_mib}: give {DISK_MIB_MIN} or more, or 0 for none")
    with ExitStack() as stack:
        addresses = stack.enter_context(claimed_network())
        # Before the file: the fork server gets ready while the file is read here.
        fork_server()
        file = write_cluster_file(
            directory,
            slaves_count,
            settings,
            kind=kind,
            network=addresses,
            proxied=proxied,
            has_master_address=has_master_address,
        )
        if settings.get("tls", {}).get("mode", "disabled") != "disabled":
            _make_certificates(file)
        spec = read_spec(file)
        spec.make_directories()
        pairs = proxied_pairs(addresses, slaves_count, kind) if proxied else []
        network = stack.enter_context(_network(spec, pairs)) if pairs else None
        supervisor = stack.enter_context(_supervisor(spec, disk_mib))
        root = Path(f"/proc/{supervisor.pid}/root") if disk_mib else None
        cluster = RunningCluster(spec, network=network, root=root)
        cluster.wait_in_sync()
        yield cluster


def _make_certificates(file: Path) -> None:
    # Imported here: the library that makes them is an extra.
    from tandem.cluster.certificates import make_certificates  # noqa: PLC0415

    config = load_config(file)
    directory = (config.file.parent / config.tls.ca_file).parent
    make_certificates(config, directory, now=dt.datetime.now(dt.UTC))


@contextmanager
def _supervisor(spec: ClusterSpec, disk_mib: int) -> Iterator[Reply]:
    """Have the cluster up while the block runs, or until this process ends, however it ends."""
    options = {"lifeline": True, "forks": True, "kills": True, "disk_mib": disk_mib}
    stdin, lifeline = os.pipe()
    news, news_write = os.pipe()
    with os.fdopen(lifeline, "wb") as held, os.fdopen(news, "rb") as heard:
        process = _fork(
            spec,
            "supervisor",
            "tandem.cluster",
            [str(spec.file), "3", msgspec.json.encode(options).decode()],
            stdin,
            [news_write],
        )
        try:
            yield _read_news(spec, heard.read())
        finally:
            held.close()
            _end(process)


def _read_news(spec: ClusterSpec, line: bytes) -> Reply:
    try:
        reply = decode_json(line, Reply)
    except UnreadableError:
        log = spec.log_file("supervisor")
        raise SupervisorGoneError(f"the cluster did not start; see {log}") from None
    if reply.error:
        raise OrderRefusedError(reply.error, reply.refusal)
    return reply


@contextmanager
def _network(spec: ClusterSpec, pairs: Sequence[ProxiedPair]) -> Iterator[NetworkControl]:
    """Have the proxies between the nodes while the block runs, or until this process ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        process = _fork(
            spec,
            _NETWORK_LOG,
            "tandem.testing.network_process",
            [msgspec.json.encode(pairs).decode()],
            theirs.detach(),
            [],
        )
        try:
            control = NetworkControl(ours)
            control.wait_ready()
            yield control
        finally:
            ours.close()
            _end(process)


def _fork(
    spec: ClusterSpec,
    name: str,
    module: str,
    arguments: list[str],
    stdin: int,
    others: Sequence[int],
) -> ForkedProcess:
    """Start a process that logs to `NAME.log`; `stdin` and `others` are closed here."""
    request = ForkRequest(
        module=module,
        arguments=arguments,
        directory=str(Path.cwd()),
        environment=node_environment(),
        leads_session=True,
    )
    with spec.log_file(name).open("ab") as log:
        try:
            descriptors = [stdin, log.fileno(), log.fileno(), *others]
            return fork_server().fork(request, descriptors)
        finally:
            for descriptor in (stdin, *others):
                os.close(descriptor)


def _end(process: ForkedProcess) -> None:
    if not process.wait(STOP_SECONDS_MAX):
        process.kill()
    process.close()
