"""Real nodes that die by SIGKILL at a named point, under load: nothing acknowledged is lost.

Each point is a question: what was true when the process died, and does the group still know?
`killing_node.POINTS` says what is true at each.
"""

from __future__ import annotations

import secrets
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from tandem.client import Ack, Admin, ClientError, Producer
from tandem.client.results import SendStatus
from tandem.cluster import LocalCluster, NodeStartError, NodeState, read_spec
from tandem.wire.message import Message
from tests.faults.killing_node import POINTS
from tests.sim.checker import walk_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tandem.cluster import ClusterSpec
    from tandem.wire.ha_status import FencedStatus

pytestmark = [pytest.mark.fault, pytest.mark.slow]

TOPIC = "Orders"
PRODUCERS = 3

TAIL_MESSAGES = 200

IN_THE_ORDINARY_RUN = ("one-of-two-acks", "epoch-appended", "cut-2")
"""The others are `long`: each takes about ten seconds."""

ALL_POINTS = [
    pytest.param(point, marks=() if point in IN_THE_ORDINARY_RUN else pytest.mark.long)
    for point in POINTS
]

CANDIDATE_POINTS = ("elected", "epoch-appended", "epoch-file", "epoch-file-copy")
"""Reached by whoever takes over."""


def write_cluster(directory: Path) -> ClusterSpec:
    """Three nodes with small files, on addresses of this test only."""
    network = f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}"
    content = {
        "store": {
            "mapped_file_size_commit_log_bytes": 262_144,
            "mapped_file_size_consume_queue_bytes": 6_000,
            "max_message_size_bytes": 65_536,
            "flush_interval_commit_log_ms": 50,
            "flush_commit_log_least_pages": 0,
        },
        "broker": {"stop_grace_ms": 500},
        "coordinator": {"address": f"{network}.9", "lease_ttl_ms": 2_000},
        "groups": {"broker-a": {"kind": "fenced"}},
        "nodes": [
            {
                "name": f"broker-a-{index}",
                "group": "broker-a",
                "broker_id": index + 1,
                "address": f"{network}.{index + 1}",
            }
            for index in range(3)
        ],
    }
    file = directory / "cluster.yaml"
    file.write_bytes(msgspec.json.encode(content))  # JSON is YAML
    return read_spec(file)


class World:
    """A group under load, and what its producers were told."""

    def __init__(self, spec: ClusterSpec, cluster: LocalCluster, admin: Admin) -> None:
        self.spec = spec
        self.cluster = cluster
        self.admin = admin
        self.arm_file = spec.nodes[0].directory.parent / "arm"
        self.sent: set[str] = set()
        self.acked: set[str] = set()

    async def produce(self, number: int) -> None:
        """Send one message after the other until cancelled; each until it is safe."""
        async with Producer(
            self.spec.name_servers, f"group-{number}", resend_until_ok=True
        ) as producer:
            for count in range(1_000_000):
                key = f"{number}-{count}"
                self.sent.add(key)
                try:
                    result = await producer.send(Message(TOPIC, key.encode() * 20, keys=key))
                except ClientError:
                    await trio.sleep(0.05)
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.acked.add(key)
                await trio.sleep(0.002)

    async def leave_a_tail_on(self, master: str) -> None:
        """Have the master alone hold some messages: nobody was told that they are safe."""
        slaves = [node.name for node in self.spec.nodes if node.name != master]
        for slave in slaves:
            self.cluster.pause(slave)
        async with Producer(
            self.spec.node(master).client_address, "tail", ack=Ack.ASYNC
        ) as producer:
            # More than the kernel keeps for frozen processes: they would find it on waking up.
            for count in range(TAIL_MESSAGES):
                key = f"tail-{count}"
                self.sent.add(key)
                await producer.send(Message(TOPIC, bytes(60_000), keys=key))
        await self.cluster.kill(master)
        for slave in slaves:
            self.cluster.resume(slave)

    async def status(self, node: str) -> FencedStatus | None:
        """What a node says about the group, None if it does not answer."""
        with trio.move_on_after(1.0):
            try:
                return await self.admin.fenced_status(self.spec.node(node).client_address)
            except ClientError:
                return None
        return None

    async def master(self, *, not_this: str = "") -> str:
        """Wait until a node takes messages; return its name."""
        with trio.fail_after(20):
            while True:
                for node in self.spec.nodes:
                    status = await self.status(node.name)
                    if status and status.role == "MASTER" and node.name != not_this:
                        return node.name
                await trio.sleep(0.05)

    async def in_sync(self, count: int) -> None:
        """Wait until the in-sync set has so many members, all of them live."""
        with trio.fail_after(30):
            while True:
                status = await self.status(await self.master())
                live = [r for r in status.replicas if r.connected and r.in_sync] if status else []
                if len(live) + 1 >= count:
                    return
                await trio.sleep(0.05)

    async def acked_more(self, count: int = 20) -> None:
        """Wait until so many more messages were acknowledged."""
        wanted = len(self.acked) + count
        with trio.fail_after(20):
            await until(lambda: len(self.acked) >= wanted)

    async def somebody_dies(self) -> str:
        """Wait until a node has come by the point; return its name."""
        with trio.fail_after(20):
            await until(lambda: not self.arm_file.exists())
            await until(lambda: bool(self.dead()))
        return self.dead()[0]

    def dead(self) -> list[str]:
        """Nodes that ended by themselves."""
        return [n.name for n in self.spec.nodes if self.cluster.state(n.name) is NodeState.FAILED]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await trio.sleep(0.02)


@asynccontextmanager
async def running(spec: ClusterSpec, point: str) -> AsyncIterator[World]:
    """A group of nodes that know the point, in sync and under load."""

    def command(config: Path, name: str) -> list[str]:
        module = ["-P", "-m", "tests.faults.killing_node", point]
        return [sys.executable, *module, "--config", str(config), "--name", name, "--supervised"]

    async with (
        LocalCluster(spec, command=command) as cluster,
        Admin(spec.name_servers) as admin,
        trio.open_nursery() as nursery,
    ):
        await cluster.start()
        world = World(spec, cluster, admin)
        for number in range(PRODUCERS):
            nursery.start_soon(world.produce, number)
        await world.in_sync(3)
        await world.acked_more()
        yield world
        nursery.cancel_scope.cancel()


async def bring_about(world: World, point: str) -> str:
    """Do what makes a node come by the point; return who died there."""
    master = await world.master()
    slave = next(node.name for node in world.spec.nodes if node.name != master)
    if point == "isr-expand":
        await world.cluster.kill(slave)
        await world.in_sync(2)
        await world.acked_more()
    elif point.startswith("cut-"):
        await world.leave_a_tail_on(master)
        await world.acked_more()
    world.arm_file.touch()
    if point in CANDIDATE_POINTS:
        await world.cluster.kill(master)
    elif point == "isr-shrink":
        await world.cluster.kill(slave)
    elif point == "isr-expand":
        await world.cluster.start(slave)
    elif point.startswith("cut-"):
        with trio.move_on_after(5):
            await start_kindly(world.cluster, master)
    return await world.somebody_dies()


async def start_kindly(cluster: LocalCluster, name: str) -> None:
    """Start a node that may die while it starts: that is what it is here for."""
    try:
        await cluster.start(name)
    except NodeStartError:
        return


@pytest.mark.parametrize("point", ALL_POINTS)
async def test_nothing_acknowledged_is_lost_when_a_node_dies(point: str, tmp_path: Path) -> None:
    spec = write_cluster(tmp_path)
    async with running(spec, point) as world:
        died = await bring_about(world, point)
        running_nodes = [n for n in spec.nodes if world.cluster.state(n.name) is NodeState.RUNNING]
        if len(running_nodes) < 2:  # one alone acknowledges nothing
            await world.cluster.start(died)
        await world.acked_more(50)
        for node in spec.nodes:
            if world.cluster.state(node.name) not in (NodeState.RUNNING, NodeState.STARTING):
                await world.cluster.start(node.name)
        await world.in_sync(3)
        await world.acked_more(50)
        acked_at_end = set(world.acked)
    assert died
    logs = {node.name: walk_log(read_log(node.directory)) for node in spec.nodes}
    for name, log in logs.items():
        assert not log.fault, (name, log.fault)
        keys = {record.key for record in log.records}
        assert not acked_at_end - keys, (name, sorted(acked_at_end - keys)[:5])
        assert keys - {""} <= world.sent | {""}, name
    shortest = min(len(log.data) for log in logs.values())
    assert len({log.data[:shortest] for log in logs.values()}) == 1


def read_log(directory: Path) -> bytes:
    """The commit log of a node that has stopped, up to where nothing was written yet."""
    files = sorted((directory / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")
