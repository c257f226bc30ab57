"""Nodes of Kafka 4.1 (KRaft), each broker and controller, from Maven: three, or one.

With three, `min.insync.replicas` is 2 and topics have three replicas, so that with acks=all a
record is answered when all replicas that are in sync have it, and two are enough. Old segments are
deleted soon, so that a run takes little room. Each node has a heap of 1 GB. All else is as Kafka
has it by default.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.rivals import BOOT_SECONDS_MAX, Server, pause
from tests.compat.programs import NotToBeHadError, classpath, ended_with_us, fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

POM: Final = Path(__file__).resolve().parent / "java" / "kafka.xml"
NODES: Final = 3
PORT: Final = 9092
RETAINED_BYTES: Final = 64 << 20
"""Of a partition: old segments are deleted soon."""
_CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qk"
_HEAP: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")

_SETTINGS: Final = """
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:9092,CONTROLLER://{host}:9093
advertised.listeners=PLAINTEXT://{host}:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/logs
min.insync.replicas={in_sync}
default.replication.factor={nodes}
offsets.topic.replication.factor={nodes}
log.segment.bytes=67108864
log.retention.bytes={retained_bytes}
log.retention.check.interval.ms=10000
log.segment.delete.delay.ms=1000
"""


def kafka_jars() -> str:
    """Return them as Java's option wants them.

    Raises:
        NotToBeHadError: There is no Java, no Maven or no network.
    """
    return classpath(str(POM))


@contextmanager
def kafka_group(
    directory: Path, *, nodes: int = NODES, retained_bytes: int = RETAINED_BYTES
) -> Iterator[Server]:
    """Have nodes up. `name_server` is what its clients take. -1 retains all of a partition.

    Raises:
        NotToBeHadError: Kafka cannot be fetched, or does not start.
    """
    jars = kafka_jars()
    directory.mkdir()
    number = f"127.{2 + secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
    hosts = [f"{number}.{1 + index}" for index in range(nodes)]
    voters = ",".join(f"{index}@{host}:9093" for index, host in enumerate(hosts, 1))
    with ExitStack() as stack:
        pids = {}
        for node_id, host in enumerate(hosts, 1):
            home = directory / f"node-{node_id}"
            home.mkdir()
            settings = home / "server.properties"
            settings.write_text(
                _SETTINGS.format(
                    node_id=node_id,
                    host=host,
                    voters=voters,
                    directory=home,
                    in_sync=min(nodes, 2),
                    nodes=nodes,
                    retained_bytes=retained_bytes,
                )
            )
            java = ["java", *_HEAP, "-cp", jars]
            tool = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c"]
            fetch([*tool, str(settings)], cwd=home)
            with (home / "said").open("w") as log:
                process = subprocess.Popen(
                    ended_with_us([*java, "kafka.Kafka", str(settings)]),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=home,
                )
            stack.callback(process.wait)
            stack.callback(process.kill)
            pids[f"node {node_id}"] = process.pid
        for host in hosts:
            _wait_until_open(host)
        yield Server("Kafka", (hosts[0], PORT), f"{hosts[0]}:{PORT}", pids)


def _wait_until_open(host: str) -> None:
    deadline = time.monotonic() + BOOT_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, PORT), 1).close()
        except OSError:
            pause(0.2)
        else:
            return
    raise NotToBeHadError(f"Kafka's node at {host} does not start")
