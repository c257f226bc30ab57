"""A group of ours and one of RocketMQ 5.3.3's, with the same settings, for loads in turns.

Same at both: log files of 256 MiB, pages touched ahead (ours does that anyway, RocketMQ by
`warmMapedFileEnable`, the whole next file), ASYNC_FLUSH, no transient pool, an index of RocketMQ's
default size, no timer wheel, files deleted every ten seconds as soon as another is begun
(`fileReservedTime` 0, `diskMaxUsedSpaceRatio` 10), so that a run takes little room. With a slave:
SYNC_MASTER, and a put that waits is answered when the slave has it. RocketMQ 5 needs
`inSyncReplicas=2` for that: with its default of 1 a SYNC_MASTER waits for nobody.

RocketMQ has a heap of 1 GB, G1 and both compilers, as its own scripts start it but smaller. Its
logs are off, and so is `brokerFastFailureEnable`, which would answer SYSTEM_BUSY while the JIT
compiler has the cores. All else is as either has it by default.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from benchmarks.pipelined import ask, cpu_seconds, send_frames
from tandem.testing import RunningCluster, running_cluster, running_fenced_cluster
from tests.compat.programs import NotToBeHadError, classpath, ended_with_us
from tests.compat.targets import QUIET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FILE_BYTES: Final = 256 << 20
PORT: Final = 10_911
BOOT_SECONDS_MAX: Final = 240.0
PROXY_ATTEMPTS: Final = 5
IN_SYNC_SECONDS_MAX: Final = 60.0
IDLE_SECONDS_MAX: Final = 30.0

_HEAP: Final = ("-Xms1g", "-Xmx1g", "-Xmn512m", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=4m")
_OPENED: Final = ("java.nio", "sun.nio.ch", "jdk.internal.ref")

STORE: Final = {
    "mapped_file_size_commit_log_bytes": FILE_BYTES,
    "mapped_file_size_consume_queue_bytes": 6_000_000,
    "max_message_size_bytes": 4 << 20,
    "max_hash_slot_num": 5_000_000,
    "max_index_num": 20_000_000,
    "file_reserved_time_hours": 0,
    "disk_max_used_space_ratio": 10,
    "disk_space_clean_forcibly_ratio": 99,
    "disk_space_warning_level_ratio": 99,
}
_BROKER: Final = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "listenPort": str(PORT),
    "flushDiskType": "ASYNC_FLUSH",
    "slaveReadEnable": "true",
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "warmMapedFileEnable": "true",
    "timerWheelEnable": "false",
    "fileReservedTime": "0",
    "diskMaxUsedSpaceRatio": "10",
    "brokerFastFailureEnable": "false",
}


class Server(msgspec.Struct, frozen=True):
    """A group that serves. `pids` by what the process is: master or slave."""

    name: str
    address: tuple[str, int]
    """Of the master."""
    name_server: str
    pids: dict[str, int]


@contextmanager
def our_group(
    directory: Path,
    slaves_count: int,
    *,
    store: Mapping[str, Any] | None = None,
    broker: Mapping[str, Any] | None = None,
) -> Iterator[Server]:
    """Have a classic group of ours up; `store` and `broker` are more of its settings."""
    directory.mkdir(exist_ok=True)
    settings = our_settings(store, broker)
    role = "SYNC_MASTER" if slaves_count else "ASYNC_MASTER"
    settings["groups"] = {"broker-a": {"broker_role": role}}
    with running_cluster(directory, slaves_count=slaves_count, settings=settings) as cluster:
        yield server_of(cluster)


def our_settings(
    store: Mapping[str, Any] | None = None, broker: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the settings of a group of ours."""
    return {
        "store": {**STORE, **(store or {})},
        "replication": {},
        "broker": {"register_broker_interval_ms": 10_000, **(broker or {})},
    }


def server_of(cluster: RunningCluster) -> Server:
    """Return what is to be known of a cluster that is up."""
    if cluster.is_fenced:
        master = cluster.spec.node(cluster.master())
        pids = {node.name: node.pid for node in cluster.status() if node.pid is not None}
        named = {"master": pids.pop(master.name)}
        named |= {f"follower {place}": pid for place, pid in enumerate(pids.values(), 1)}
        return Server("ours", (master.address, master.port), cluster.name_servers[0], named)
    nodes = cluster.status()
    named = {
        "master" if node.role == "MASTER" else f"slave{number or ''}": node.pid
        for number, node in enumerate(reversed(nodes))
        if node.pid is not None
    }
    first = cluster.spec.nodes[0]
    return Server("ours", (first.address, first.port), cluster.name_servers[0], named)


@contextmanager
def our_fenced_group(
    directory: Path,
    nodes_count: int,
    *,
    store: Mapping[str, Any] | None = None,
    broker: Mapping[str, Any] | None = None,
) -> Iterator[Server]:
    """Have a fenced group of ours up, with a master; `store` and `broker` are more settings."""
    directory.mkdir(exist_ok=True)
    settings = our_settings(store, broker)
    with running_fenced_cluster(directory, nodes_count=nodes_count, settings=settings) as cluster:
        yield server_of(cluster)


@contextmanager
def rocketmq_group(
    directory: Path, slaves_count: int, more: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Have a name server and a broker of RocketMQ's up, and a slave if one is asked for.

    `more` are more settings of brokers.

    Raises:
        NotToBeHadError: RocketMQ cannot be fetched.
    """
    jars = classpath("pom.xml", "tools")
    directory.mkdir(exist_ok=True)
    number = 2 + secrets.randbelow(250)
    hosts = [f"127.{number}.{1 + secrets.randbelow(250)}.{i + 1}" for i in range(slaves_count + 1)]
    name_server = f"{hosts[0]}:9876"
    with ExitStack() as stack:
        home = directory / "names"
        own = {
            "bindAddress": hosts[0],
            "listenPort": "9876",
            "rocketmqHome": str(home),
            "kvConfigPath": str(home / "kvConfig.json"),
            "configStorePath": str(home / "namesrv.properties"),
        }
        _start(stack, jars, home, "org.apache.rocketmq.namesrv.NamesrvStartup", own)
        pids = {}
        for broker_id, host in enumerate(hosts):
            role = "slave" if broker_id else "master"
            settings = _broker_settings(
                directory / role, host, name_server, broker_id, slaves_count
            ) | dict(more or {})
            program = "org.apache.rocketmq.broker.BrokerStartup"
            pids[role] = _start(stack, jars, directory / role, program, settings)
        yield Server("RocketMQ", (hosts[0], PORT), name_server, pids)


def _broker_settings(
    home: Path, host: str, name_server: str, broker_id: int, slaves_count: int
) -> dict[str, str]:
    role = "SLAVE" if broker_id else "SYNC_MASTER" if slaves_count else "ASYNC_MASTER"
    return _BROKER | {
        "namesrvAddr": name_server,
        "bindAddress": host,
        "brokerIP1": host,
        "brokerIP2": host,
        "brokerId": str(broker_id),
        "brokerRole": role,
        "inSyncReplicas": str(1 + slaves_count),
        # This port is taken on all addresses.
        "haListenPort": str(20_000 + secrets.randbelow(20_000)),
        "storePathRootDir": str(home / "store"),
        "storePathCommitLog": str(home / "store" / "commitlog"),
    }


@contextmanager
def rocketmq_proxy(directory: Path, name_server: str) -> Iterator[tuple[tuple[str, int], int]]:
    """Have RocketMQ's proxy up before a broker; yield the address of its gRPC, and its process.

    Raises:
        NotToBeHadError: it cannot be fetched, or does not start.
    """
    jars = classpath("pom.xml", "proxy")
    home = directory / "proxy"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "logback_proxy.xml").write_text(QUIET)
    remoting, grpc = free_port(), free_port()
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "proxyMode": "CLUSTER",
        "namesrvAddr": name_server,
        "localServeAddr": "127.0.0.1",
        "remotingListenPort": remoting,
        "grpcServerPort": grpc,
    }
    given, said = home / "given.json", home / "said"
    given.write_bytes(msgspec.json.encode(settings))
    command = [
        *java_command(jars, home, *_HEAP),
        *("org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(given)),
    ]
    environment = {**os.environ, "RMQ_PROXY_HOME": str(home)}
    for attempt in range(1, PROXY_ATTEMPTS + 1):
        with ExitStack() as stack:
            log = stack.enter_context(said.open("w"))
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=home, env=environment
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            if _is_up(process, said):
                yield ("127.0.0.1", grpc), process.pid
                return
        # It gives up after three seconds without an answer of the broker.
        if attempt == PROXY_ATTEMPTS:
            raise NotToBeHadError(f"the proxy does not start: {said.read_text()[-600:]}")


def _is_up(process: subprocess.Popen[bytes], said: Path) -> bool:
    deadline = time.monotonic() + BOOT_SECONDS_MAX
    while "startup successfully" not in said.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        pause(0.2)
    return True


def free_port() -> int:
    """Return a port that nobody listens on at the moment."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def java_command(jars: str, home: Path, *options: str) -> list[str]:
    """The beginning of a command line: Java as it runs in earnest, its logs below `home`.

    It ends with this process, however that ends.
    """
    exported = [
        word for each in _OPENED for word in ("--add-opens", f"java.base/{each}=ALL-UNNAMED")
    ]
    return ended_with_us(
        [
            *("java", *options, *exported),
            *("--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"),
            *(f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"),
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
            *("-cp", jars),
        ]
    )


def _start(
    stack: ExitStack, jars: str, home: Path, program: str, properties: Mapping[str, str]
) -> int:
    (home / "conf").mkdir(parents=True)
    for name in ("namesrv", "broker"):
        (home / "conf" / f"logback_{name}.xml").write_text(QUIET)
    given = home / "given.properties"
    given.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    heap = _HEAP if "broker" in program else ("-Xmx256m", "-XX:+UseSerialGC")
    said = home / "said"
    with said.open("w") as log:
        process = subprocess.Popen(
            [*java_command(jars, home, *heap), program, "-c", str(given)],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=home,
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    deadline = time.monotonic() + BOOT_SECONDS_MAX
    while "boot success" not in said.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise NotToBeHadError(f"{program} does not start: {said.read_text()[-600:]}")
        pause(0.1)
    return process.pid


def wait_in_sync(server: Server, topic: str) -> None:
    """Send until a put that waits for the slave is answered well; the topic is there then."""
    frame = send_frames(topic, 1, wait=True)[0]
    deadline = time.monotonic() + IN_SYNC_SECONDS_MAX
    while (header := ask(server.address, frame)).get("code") != 0:
        if time.monotonic() > deadline:
            sys.exit(f"{server.name}: a put is answered {header.get('code')}: {header}")
        pause(0.2)


def wait_until_idle(server: Server) -> None:
    """Wait until the files that come next have been touched."""
    deadline = time.monotonic() + IDLE_SECONDS_MAX
    before = -1.0
    while time.monotonic() < deadline:
        now = sum(map(cpu_seconds, server.pids.values()))
        if before >= 0 and now < before + 0.06:
            return
        before = now
        pause(0.5)


def pause(seconds: float) -> None:
    """Wait for other processes."""
    trio.run(trio.sleep, seconds)
