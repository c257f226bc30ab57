"""A fenced group of real nodes under load: what is done to it, and what it owes at the end."""

import math
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from tandem.client import Ack, Admin, ClientError, Producer
from tandem.client.cluster_access import ClusterAccess
from tandem.client.results import SendStatus
from tandem.cluster import ClusterSpec, LocalCluster, NodeState, read_spec
from tandem.cluster.spec import node_command
from tandem.testing import GROUP, write_cluster_file
from tandem.wire.group_state import GroupKeys
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.message import Message
from tests.sim.engine.walked_log import walk_log
from tests.support.patience import PATIENCE_MS, PATIENCE_SECONDS, PATIENT_LEASE, until
from tests.support.processes import TANDEM

KEYS: Final = GroupKeys("DefaultCluster", GROUP)
NODES: Final = tuple(f"{GROUP}-{broker_id}" for broker_id in (1, 2, 3))

TOPIC: Final = "Orders"
PRODUCERS: Final = 3
TAIL_MESSAGES: Final = 200
BIG_MESSAGES: Final = 20
"""Of 60,000 bytes."""

PATIENT: Final = PATIENT_LEASE["coordinator"]
"""For `coordinator=` of a group of which no lease has to end by itself."""


def write_group(directory: Path, **sections: Mapping[str, Any]) -> ClusterSpec:
    """Three nodes with small files, on addresses of this test only."""
    small = {
        "mapped_file_size_commit_log_bytes": 262_144,
        "mapped_file_size_consume_queue_bytes": 6_000,
    }
    settings = {
        **sections,
        "store": small | dict(sections.get("store", {})),
        "broker": {"stop_grace_ms": 500},
    }
    return read_spec(write_cluster_file(directory, len(NODES) - 1, settings, kind="fenced"))


class PatientCluster(LocalCluster):
    """One whose nodes may take as long to start and to stop as a busy machine takes."""

    async def start(
        self, name: str | None = None, *, ready_seconds_max: float = PATIENCE_SECONDS
    ) -> None:
        """See `LocalCluster.start`."""
        await super().start(name, ready_seconds_max=ready_seconds_max)

    async def stop(
        self, name: str | None = None, *, grace_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """See `LocalCluster.stop`; a node that is killed because it is slow leaves other files."""
        await super().stop(name, grace_seconds=PATIENCE_SECONDS if grace_seconds else 0.0)


class Group:
    """A group under load, and what its producers were told."""

    def __init__(self, spec: ClusterSpec, cluster: LocalCluster, admin: Admin) -> None:
        self.spec = spec
        self.cluster = cluster
        self._admin = admin
        self.sent: set[str] = set()
        self.acked: set[str] = set()
        self.failed: list[str] = []
        """Sends that their producer gave up, and why."""
        self._may_send = trio.Event()
        self._may_send.set()
        self._resting = 0

    async def rest(self) -> None:
        """Have the producers send nothing more; return when all have their answers."""
        self._may_send = trio.Event()
        await until(lambda: self._resting == PRODUCERS)

    def go_on(self) -> None:
        """Have the producers send again."""
        self._may_send.set()

    async def produce(self, number: int) -> None:
        """Send one message after the other until cancelled; each until it is safe."""
        async with Producer(
            self.spec.name_servers, f"group-{number}", resend_until_ok=True
        ) as producer:
            for count in range(1_000_000):
                # One that may go on does not rest: three of them at once would look like a rest.
                if not self._may_send.is_set():
                    self._resting += 1
                    await self._may_send.wait()
                    self._resting -= 1
                key = f"{number}-{count}"
                self.sent.add(key)
                try:
                    result = await producer.send(Message(TOPIC, key.encode() * 20, keys=key))
                except ClientError as error:
                    self.failed.append(f"{key}: {error}")
                    await trio.sleep(0.05)
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.acked.add(key)
                await trio.sleep(0.005)

    async def leave_a_tail_on(self, master: str) -> None:
        """Have the master alone hold some messages: nobody was told that they are safe."""
        slaves = [node.name for node in self.spec.nodes if node.name != master]
        for slave in slaves:
            self.cluster.pause(slave)
        async with Producer(
            self.spec.node(master).client_address,
            "tail",
            ack=Ack.ASYNC,
            send_msg_timeout_ms=PATIENCE_MS,
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
        # One that runs answers, on a busy machine late. Others are not worth the client's patience.
        runs = self.cluster.state(node) is NodeState.RUNNING
        with trio.move_on_after(math.inf if runs else 1.0):
            try:
                return await self._admin.fenced_status(self.spec.node(node).client_address)
            except ClientError:
                return None
        return None

    async def master(self, *, not_this: str = "") -> str:
        """Wait until a node takes messages; return its name."""
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                for node in NODES:
                    status = await self.status(node)
                    if status and status.role == "MASTER" and node != not_this:
                        return node
                await trio.sleep(0.05)

    async def answer(self, node: str) -> FencedStatus:
        """What a node that runs says about the group, once it answers."""
        with trio.fail_after(PATIENCE_SECONDS):
            while (status := await self.status(node)) is None:
                await trio.sleep(0.05)
        return status

    async def epoch(self) -> int:
        """How often the master has changed."""
        return (await self.answer(await self.master())).epoch

    async def in_sync(self, count: int) -> None:
        """Wait until the in-sync set has so many members, all of them live."""
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                status = await self.status(await self.master())
                live = [r for r in status.replicas if r.connected and r.in_sync] if status else []
                if len(live) + 1 >= count:
                    return
                await trio.sleep(0.05)

    async def ends_are_equal(self) -> None:
        """Wait until every node has the whole log, while nobody sends."""
        with trio.fail_after(PATIENCE_SECONDS):
            while len({(await self.answer(node)).log_end for node in NODES}) > 1:
                await trio.sleep(0.05)

    async def acked_more(self, count: int = 20) -> None:
        """Wait until so many more messages were acknowledged."""
        wanted = len(self.acked) + count
        await until(lambda: len(self.acked) >= wanted)

    async def sends_some(self, count: int = 3) -> None:
        """Have producers that rest send until so many more messages were acknowledged."""
        self.go_on()
        await self.acked_more(count)
        await self.rest()

    async def nobody_is_master(self, seconds: float) -> None:
        """Look for so long whether anybody is."""
        deadline = trio.current_time() + seconds
        while trio.current_time() < deadline:
            for node in NODES:
                status = await self.status(node)
                assert status is None or status.role not in ("MASTER", "OPENING"), status
            await trio.sleep(0.1)

    async def no_master(self) -> None:
        """Wait until nobody is master any more."""
        with trio.fail_after(PATIENCE_SECONDS):
            while "MASTER" in [s.role for node in NODES if (s := await self.status(node))]:
                await trio.sleep(0.1)

    async def has_role(self, node: str, role: str) -> None:
        """Wait until a node says that it is in this role."""
        with trio.fail_after(PATIENCE_SECONDS):
            while (status := await self.status(node)) is None or status.role != role:
                await trio.sleep(0.05)

    async def all_say(self, word: str) -> None:
        """Wait until all nodes answer, and each says why it takes no messages, with this word."""
        told: dict[str, str] = {}
        with trio.move_on_after(PATIENCE_SECONDS):
            while len(told) < len(NODES):
                await trio.sleep(0.05)
                for node in NODES:
                    status = await self.status(node)
                    if status and word in status.refusal:
                        told[node] = status.refusal
        assert len(told) == len(NODES), told

    async def recover(self, *options: str) -> subprocess.CompletedProcess[bytes]:
        """Run `tandem ha recover-group`, as an operator would."""
        command = [*TANDEM, "ha", "recover-group", GROUP, *options]
        with trio.fail_after(PATIENCE_SECONDS):
            return await trio.run_process(
                [*command, "-c", str(self.spec.file)],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )

    def safe_producer(self, name: str) -> Producer:
        """Return a producer whose sends end when they are safe, however long a switch takes."""
        return Producer(
            self.spec.name_servers,
            name,
            ack=Ack.REPLICATED,
            resend_until_ok=True,
            send_msg_timeout_ms=PATIENCE_MS,
        )

    async def send_big(self) -> None:
        """Send some five files of the log."""
        async with self.safe_producer("big") as producer:
            for count in range(BIG_MESSAGES):
                key = f"big-{count}"
                self.sent.add(key)
                await producer.send(Message(TOPIC, bytes(60_000), keys=key))
                self.acked.add(key)

    async def becomes_whole(self, node: str) -> None:
        """Have a node look through its disk, and wait until it has, and knows of no damage."""
        await self._scrub(node)
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                status = await self.status(node)
                if status is not None and not status.damage and "has read the log" in status.scrub:
                    return
                await trio.sleep(0.05)

    async def rejoin(self, node: str) -> None:
        """Have a node copy the log anew, as `tandem ha rejoin --accept-loss` does."""
        await self._order(node, FencedCommand(command="rejoin", node=node, accept_loss=True))

    async def _scrub(self, node: str) -> None:
        """Order what `tandem ha scrub` does."""
        await self._order(node, FencedCommand(command="scrub"))

    async def _order(self, node: str, command: FencedCommand) -> None:
        """Give an order until it is carried out: while the group changes, it may be refused."""
        why_not = ""
        with trio.move_on_after(PATIENCE_SECONDS):
            while True:
                try:
                    done = await self.try_order(node, command)
                except ClientError as error:
                    why_not = str(error)
                else:
                    if done.done:
                        return
                    why_not = done.text
                await trio.sleep(0.05)
        raise AssertionError(why_not)

    async def try_order(self, node: str, command: FencedCommand) -> FencedCommandResult:
        """Give a node an operator's order; return what came of it."""
        access = ClusterAccess(self.spec.name_servers, secret=self.spec.read_secret())
        address = self.spec.node(node).client_address
        with trio.fail_after(PATIENCE_SECONDS):
            async with Admin(access) as admin:
                return await admin.fenced_command(address, command)

    async def in_sync_names(self) -> list[str]:
        """The in-sync set, as its master has it."""
        return (await self.answer(await self.master())).isr

    async def make_whole(self) -> None:
        """Start who does not run; wait until all have what all others have, and more."""
        for name in NODES:
            if self.cluster.state(name) not in (NodeState.RUNNING, NodeState.STARTING):
                await self.cluster.start(name)
        await self.in_sync(len(NODES))
        await self.acked_more()


@asynccontextmanager
async def under_load(
    spec: ClusterSpec,
    before: Callable[[Group], Awaitable[None]] | None = None,
    *,
    first_producer: int = 0,
    command: Callable[[Path, str], list[str]] = node_command,
) -> AsyncIterator[Group]:
    """A group in sync and under load; at the end all nodes have all that was acknowledged.

    `before` is called when all nodes run and nothing was sent yet; `command` gives the command line
    of a node. No two producers of one number send to the same logs: what one has sent would stand
    for what another has lost.
    """
    async with (
        PatientCluster(spec, command=command) as cluster,
        Admin(spec.name_servers) as admin,
        trio.open_nursery() as nursery,
    ):
        await cluster.start()
        group = Group(spec, cluster, admin)
        if before is not None:
            await before(group)
        for number in range(first_producer, first_producer + PRODUCERS):
            nursery.start_soon(group.produce, number)
        await group.in_sync(len(NODES))
        await group.acked_more()
        yield group
        await group.make_whole()
        acked_at_end = set(group.acked)
        # Who is in sync has all that was acknowledged before. One that fell out of the set
        # meanwhile, on a busy machine, does not owe what the others have acknowledged since.
        await group.in_sync(len(NODES))
        nursery.cancel_scope.cancel()
    check_logs(spec, acked_at_end, group.sent)


def check_logs(spec: ClusterSpec, acked: set[str], sent: set[str]) -> None:
    """Every log is sound, has all that was acknowledged, and is as the others are."""
    check_logs_in({node.name: node.directory for node in spec.nodes}, acked, sent)


def check_logs_in(directories: Mapping[str, Path], acked: set[str], sent: set[str]) -> None:
    """The same, of nodes of several machines: their stores, by name."""
    logs = {name: walk_log(read_log(directory)) for name, directory in directories.items()}
    for name, log in logs.items():
        assert not log.fault, (name, log.fault)
        keys = {record.key for record in log.records}
        assert not acked - keys, (name, sorted(acked - keys)[:5])
        assert keys - {""} <= sent, name
    shortest = min(len(log.data) for log in logs.values())
    assert len({log.data[:shortest] for log in logs.values()}) == 1


def read_log(directory: Path) -> bytes:
    """The commit log of a node that has stopped, up to where nothing was written yet."""
    files = sorted((directory / "commitlog").iterdir())
    data = b"".join(file.read_bytes() for file in files)
    end = 0
    while size := int.from_bytes(data[end : end + 4], "big"):
        end += size
    # A record may end in zeros: one without properties does. What follows the last is none.
    return data[: max(end, len(data.rstrip(b"\0")))]
