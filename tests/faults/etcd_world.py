"""A fenced group of real nodes under load, on a real etcd or on the embedded coordinator."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from tandem.client import Admin
from tandem.cluster import LocalCluster, NodeState, read_spec
from tandem.coordinator.client import EtcdClient
from tandem.wire.group_state import GroupKeys
from tests.faults.test_kill_points import PRODUCERS, World, read_log
from tests.sim.checker import walk_log
from tests.tandem.coordinator.real_etcd import running_etcd

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from tandem.cluster import ClusterSpec
    from tests.tandem.coordinator.real_etcd import Etcd

GROUP: Final = "broker-a"
KEYS: Final = GroupKeys("DefaultCluster", GROUP)
NODES: Final = tuple(f"{GROUP}-{index}" for index in range(3))

LEASE_SECONDS: Final = 5.0
"""The default. An election among etcd's members, 1 to 2 s, must fit into it."""

LEASE_ENDS_SECONDS: Final = LEASE_SECONDS + 2.0
"""By now a lease that nobody renewed has ended, and everybody knows."""

TANDEM: Final = [sys.executable, "-P", "-c", "from tandem.cli import main; main()"]


def write_cluster(directory: Path, coordinator: dict[str, Any]) -> ClusterSpec:
    """Three nodes with small files, on addresses of this test only."""
    network = f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}"
    content = {
        "store": {
            "mapped_file_size_commit_log_bytes": 262_144,
            "mapped_file_size_consume_queue_bytes": 6_000,
            "max_message_size_bytes": 65_536,
        },
        "broker": {"stop_grace_ms": 500},
        "coordinator": {"address": f"{network}.9", "lease_ttl_ms": 5_000} | coordinator,
        "groups": {GROUP: {"kind": "fenced"}},
        "nodes": [
            {
                "name": name,
                "group": GROUP,
                "broker_id": index + 1,
                "address": f"{network}.{index + 1}",
            }
            for index, name in enumerate(NODES)
        ],
    }
    file = directory / "cluster.yaml"
    file.write_bytes(msgspec.json.encode(content))  # JSON is YAML
    return read_spec(file)


def of_etcd(members: Sequence[Etcd]) -> dict[str, Any]:
    """`coordinator:` of a cluster file."""
    return {"kind": "etcd", "endpoints": [member.endpoint for member in members]}


class Group(World):
    """A group under load; `epoch` tells how often its master has changed."""

    async def epoch(self) -> int:
        status = await self.status(await self.master())
        return status.epoch if status else -1

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
        with trio.fail_after(LEASE_ENDS_SECONDS):
            while True:
                roles = [s.role for node in NODES if (s := await self.status(node))]
                if "MASTER" not in roles:
                    return
                await trio.sleep(0.1)

    async def is_opening(self, node: str) -> None:
        """Wait until a node was elected and waits for others."""
        await self._has_role(node, "OPENING")

    async def is_in_quarantine(self, node: str) -> None:
        """Wait until a node serves nobody any more."""
        await self._has_role(node, "QUARANTINED")

    async def _has_role(self, node: str, role: str) -> None:
        with trio.fail_after(20):
            while (status := await self.status(node)) is None or status.role != role:
                await trio.sleep(0.05)

    async def all_say(self, word: str) -> None:
        """Wait until all nodes answer, and each says why it takes no messages, with this word."""
        told: dict[str, str] = {}
        with trio.move_on_after(5):
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
        with trio.fail_after(60):
            return await trio.run_process(
                [*command, "-c", str(self.spec.file)],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )


@asynccontextmanager
async def under_load(
    spec: ClusterSpec,
    before: Callable[[Group], Awaitable[None]] | None = None,
    *,
    first_producer: int = 0,
) -> AsyncIterator[Group]:
    """A group in sync and under load; at the end all nodes have all that was acknowledged.

    `before` is called when all nodes run and nothing was sent yet. No two producers of one number
    send to the same logs: what one has sent would stand for what another has lost.
    """
    async with (
        LocalCluster(spec) as cluster,
        Admin(spec.name_servers) as admin,
        trio.open_nursery() as nursery,
    ):
        await cluster.start()
        group = Group(spec, cluster, admin)
        if before is not None:
            await before(group)
        for number in range(first_producer, first_producer + PRODUCERS):
            nursery.start_soon(group.produce, number)
        await group.in_sync(3)
        await group.acked_more()
        yield group
        for name in NODES:
            if cluster.state(name) not in (NodeState.RUNNING, NodeState.STARTING):
                await cluster.start(name)
        await group.in_sync(3)
        await group.acked_more()
        acked_at_end = set(group.acked)
        nursery.cancel_scope.cancel()
    check_logs(spec, acked_at_end, group.sent)


def check_logs(spec: ClusterSpec, acked: set[str], sent: set[str]) -> None:
    """Every log is sound, has all that was acknowledged, and is as the others are."""
    logs = {node.name: walk_log(read_log(node.directory)) for node in spec.nodes}
    for name, log in logs.items():
        assert not log.fault, (name, log.fault)
        keys = {record.key for record in log.records}
        assert not acked - keys, (name, sorted(acked - keys)[:5])
        assert keys - {""} <= sent, name
    shortest = min(len(log.data) for log in logs.values())
    assert len({log.data[:shortest] for log in logs.values()}) == 1


@asynccontextmanager
async def on_etcd(
    directory: Path, members_count: int = 1, arguments: Sequence[str] = ()
) -> AsyncIterator[tuple[Group, list[Etcd]]]:
    """A group under load, and the members of its etcd; without members it is the embedded one."""
    with running_etcd(directory, members_count, arguments=arguments) as members:
        for member in members:
            await member.wait_healthy()
        settings = of_etcd(members) if members else {}
        async with under_load(write_cluster(directory, settings)) as group:
            yield group, members


@asynccontextmanager
async def client_of(*endpoints: str) -> AsyncIterator[EtcdClient]:
    client = EtcdClient(endpoints)
    try:
        yield client
    finally:
        await client.aclose()


@contextmanager
def frozen(member: Etcd) -> Iterator[None]:
    """The member keeps its connections and says nothing while the block runs."""
    member.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        member.send_signal(signal.SIGCONT)


async def make_room(etcd: Etcd, revision: int) -> None:
    """What `etcdctl compact`, `defrag` and `alarm disarm` do."""
    compact = {"revision": str(revision), "physical": True}
    await etcd.post("/v3/kv/compaction", json.dumps(compact).encode())
    await etcd.post("/v3/maintenance/defragment", b"{}")
    listed = await etcd.post("/v3/maintenance/alarm", b'{"action": "GET"}')
    for alarm in json.loads(listed)["alarms"]:
        disarm = {"action": "DEACTIVATE"} | alarm
        await etcd.post("/v3/maintenance/alarm", json.dumps(disarm).encode())


async def hurt_coordinator(group: Group, members: Sequence[Etcd], how: str) -> None:
    if members and how == "killed":
        members[0].kill()
    elif members:
        members[0].send_signal(signal.SIGSTOP)
    elif how == "killed":
        await group.cluster.stop_coordinator()
    else:
        group.cluster.pause_coordinator()


async def heal_coordinator(group: Group, members: Sequence[Etcd], how: str) -> None:
    if members and how == "killed":
        members[0].start()
    elif members:
        members[0].send_signal(signal.SIGCONT)
    elif how == "killed":
        await group.cluster.start_coordinator()
    else:
        group.cluster.resume_coordinator()


async def back_up(etcd: Etcd, to: Path) -> Path:
    """Copy what it keeps, as it is now."""
    etcd.kill()
    shutil.copytree(etcd.data_directory, to)
    etcd.start()
    await etcd.wait_healthy()
    return to


async def restore(etcd: Etcd, backup: Path) -> None:
    """Have it begin again with what it kept then."""
    etcd.kill()
    shutil.rmtree(etcd.data_directory)
    shutil.copytree(backup, etcd.data_directory)
    etcd.start()
    await etcd.wait_healthy()


async def switch(group: Group) -> None:
    """Have another node become master, and the group whole again."""
    master = await group.master()
    await group.cluster.kill(master)
    await group.master(not_this=master)
    await group.cluster.start(master)
    await group.in_sync(3)
    await group.acked_more()


async def check_recovered(group: Group) -> None:
    """Nobody becomes master; then an operator has the group go on, and it does."""
    await group.no_master()
    await group.nobody_is_master(LEASE_ENDS_SECONDS)
    await group.all_say("tandem ha recover-group")
    done = await group.recover()
    assert done.returncode == 0, (done.stdout, done.stderr)
    await group.acked_more()
