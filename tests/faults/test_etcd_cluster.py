"""Fenced groups of real nodes on a real etcd, under load, while one of them is hurt.

Whatever happens to etcd: nothing acknowledged is lost, there is no needless change of master, and
nobody becomes master on records that were set back until an operator has said so.
"""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
import trio

from tandem.client import Admin
from tandem.cluster import LocalCluster, NodeState, read_spec
from tandem.coordinator.client import EtcdClient
from tandem.coordinator.interface import CoordinatorRefusedError, Delete, Put
from tandem.wire.group_state import GroupKeys, decode_state
from tests.faults.test_kill_points import PRODUCERS, World, read_log
from tests.sim.checker import walk_log
from tests.tandem.coordinator.real_etcd import (
    add_user,
    find_leader,
    make_certificates,
    protect,
    running_etcd,
)

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from tandem.cluster import ClusterSpec
    from tests.tandem.coordinator.real_etcd import Etcd

pytestmark = [pytest.mark.fault, pytest.mark.slow]

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
async def under_load(spec: ClusterSpec) -> AsyncIterator[Group]:
    """A group in sync and under load; at the end all nodes have all that was acknowledged."""
    async with (
        LocalCluster(spec) as cluster,
        Admin(spec.name_servers) as admin,
        trio.open_nursery() as nursery,
    ):
        await cluster.start()
        group = Group(spec, cluster, admin)
        for number in range(PRODUCERS):
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


# --- the nodes are hurt ------------------------------------------------------------------------


async def test_a_killed_master_is_replaced_over_tls_and_with_a_password(tmp_path: Path) -> None:
    ca, server, _ = make_certificates(tmp_path)
    (tmp_path / "password").write_text("s3cret\n")
    arguments = [f"--cert-file={server}.crt", f"--key-file={server}.key", "--auth-token-ttl=2"]
    with running_etcd(tmp_path, scheme="https", arguments=arguments) as members:
        members[0].ca_file = f"{ca}.crt"
        await members[0].wait_healthy()
        await add_user(members[0], "tandem", "s3cret", "/tandem/")
        await protect(members[0], "root", "another secret")
        settings = {"user": "tandem", "password_file": "password", "ca_file": "ca.crt"}
        spec = write_cluster(tmp_path, of_etcd(members) | settings)
        async with under_load(spec) as group:
            killed = await group.master()
            await group.cluster.kill(killed)
            assert await group.master(not_this=killed) != killed
            await group.acked_more()
    assert not spec.coordinator_directory.exists()


@pytest.mark.long
async def test_a_frozen_master_is_replaced_when_its_lease_in_etcd_ends(tmp_path: Path) -> None:
    async with on_etcd(tmp_path, 3) as (group, _):
        master = await group.master()
        group.cluster.pause(master)
        assert await group.master(not_this=master) != master
        await group.acked_more()
        group.cluster.resume(master)


# --- etcd is hurt ------------------------------------------------------------------------------


@contextmanager
def frozen(member: Etcd) -> Iterator[None]:
    """The member keeps its connections and says nothing while the block runs."""
    member.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        member.send_signal(signal.SIGCONT)


@pytest.mark.long
async def test_a_killed_leader_of_etcd_makes_no_other_master(tmp_path: Path) -> None:
    async with on_etcd(tmp_path, 3) as (group, members):
        epoch = await group.epoch()
        for _ in range(3):
            leader = await find_leader(members)
            leader.kill()
            await trio.sleep(LEASE_ENDS_SECONDS)
            await group.acked_more()
            leader.start()
            await leader.wait_healthy()
        assert await group.epoch() == epoch


@pytest.mark.long
async def test_a_frozen_leader_of_etcd_makes_no_other_master_while_it_is_frozen(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path, 3) as (group, members):
        epoch = await group.epoch()
        leader = await find_leader(members)
        with frozen(leader):
            await trio.sleep(2 * LEASE_ENDS_SECONDS)
            await group.acked_more()
            assert await group.epoch() == epoch
        await trio.sleep(2)
        # Before 3.4.31 and 3.5.13, a leader that wakes up ends all leases that it believes to be
        # over (issue 15247 of etcd): that costs one election.
        assert await group.epoch() <= epoch + 1


@pytest.mark.long
async def test_without_a_majority_of_etcd_nobody_is_master_until_it_is_back(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path, 3) as (group, members):
        epoch = await group.epoch()
        for member in members[:2]:
            member.kill()
        await group.no_master()
        await group.nobody_is_master(3)
        await group.all_say("coordinator: ")
        for member in members[:2]:
            member.start()
        await group.acked_more()
        assert await group.epoch() == epoch + 1


@pytest.mark.long
async def test_compaction_and_defragmentation_of_etcd_are_not_noticed(tmp_path: Path) -> None:
    async with on_etcd(tmp_path, 3) as (group, members):
        epoch = await group.epoch()
        async with client_of(members[0].endpoint) as client:
            for _ in range(10):
                revision = (await client.read(KEYS.prefix)).revision
                request = json.dumps({"revision": str(revision), "physical": True})
                # To compact what is compacted already is an error.
                await client.transact([], [Put("/other", b"")])
                await members[0].post("/v3/kv/compaction", request.encode())
                for member in members:
                    await member.post("/v3/maintenance/defragment", b"{}")
                await trio.sleep(0.5)
        await group.acked_more()
        assert await group.epoch() == epoch


@pytest.mark.long
async def test_an_etcd_that_is_slow_makes_no_other_master(tmp_path: Path) -> None:
    async with on_etcd(tmp_path) as (group, members):
        epoch = await group.epoch()
        for _ in range(15):
            with frozen(members[0]):
                await trio.sleep(0.9)
            await trio.sleep(0.1)
        await group.acked_more()
        assert await group.epoch() == epoch


async def make_room(etcd: Etcd, revision: int) -> None:
    """What `etcdctl compact`, `defrag` and `alarm disarm` do."""
    compact = {"revision": str(revision), "physical": True}
    await etcd.post("/v3/kv/compaction", json.dumps(compact).encode())
    await etcd.post("/v3/maintenance/defragment", b"{}")
    listed = await etcd.post("/v3/maintenance/alarm", b'{"action": "GET"}')
    for alarm in json.loads(listed)["alarms"]:
        disarm = {"action": "DEACTIVATE"} | alarm
        await etcd.post("/v3/maintenance/alarm", json.dumps(disarm).encode())


@pytest.mark.long
async def test_an_etcd_without_space_takes_no_change_and_ends_nobody(tmp_path: Path) -> None:
    arguments = ["--quota-backend-bytes=4194304"]
    async with on_etcd(tmp_path, arguments=arguments) as (group, members):
        epoch, etcd = await group.epoch(), members[0]
        async with client_of(etcd.endpoint) as client:
            with pytest.raises(CoordinatorRefusedError, match="space exceeded; compact and def"):
                while True:
                    await client.transact([], [Put("/other", secrets.token_bytes(1_000_000))])
            master = await group.master()
            slave = next(name for name in NODES if name != master)
            await group.cluster.kill(slave)
            # It cannot be taken out of the in-sync set, so nothing is acknowledged without it.
            await trio.sleep(LEASE_ENDS_SECONDS)
            assert await group.epoch() == epoch
            acked_count = len(group.acked)
            await trio.sleep(1)
            assert len(group.acked) == acked_count
            revision = (await client.read(KEYS.prefix)).revision
        await make_room(etcd, revision)
        await group.acked_more()
        assert await group.epoch() == epoch


@pytest.mark.long
@pytest.mark.parametrize("members_count", [1, 0], ids=["etcd", "embedded"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_only_coordinator_is_away_for_a_moment(
    members_count: int, how: str, tmp_path: Path
) -> None:
    async with on_etcd(tmp_path, members_count) as (group, members):
        epoch = await group.epoch()
        await hurt_coordinator(group, members, how)
        await trio.sleep(1.5)
        await group.acked_more()
        await heal_coordinator(group, members, how)
        await trio.sleep(LEASE_ENDS_SECONDS)
        await group.acked_more()
        assert await group.epoch() == epoch


@pytest.mark.long
@pytest.mark.parametrize("members_count", [1, 0], ids=["etcd", "embedded"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_only_coordinator_is_away_for_longer_than_a_lease(
    members_count: int, how: str, tmp_path: Path
) -> None:
    async with on_etcd(tmp_path, members_count) as (group, members):
        epoch = await group.epoch()
        await hurt_coordinator(group, members, how)
        await group.no_master()
        await group.all_say("coordinator: ")
        await heal_coordinator(group, members, how)
        await group.acked_more()
        assert await group.epoch() == epoch + 1


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


# --- its records are lost, or older than the logs ------------------------------------------------


async def check_recovered(group: Group) -> None:
    """Nobody becomes master; then an operator has the group go on, and it does."""
    await group.no_master()
    await group.nobody_is_master(LEASE_ENDS_SECONDS)
    await group.all_say("tandem ha recover-group")
    done = await group.recover()
    assert done.returncode == 0, (done.stdout, done.stderr)
    await group.acked_more()


@pytest.mark.long
async def test_an_etcd_that_lost_everything_has_no_master_until_an_operator_says_so(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path) as (group, members):
        members[0].kill()
        shutil.rmtree(members[0].data_directory)
        members[0].start()
        await check_recovered(group)


@pytest.mark.long
async def test_a_deleted_record_has_no_master_until_an_operator_says_so(tmp_path: Path) -> None:
    async with on_etcd(tmp_path) as (group, members):
        async with client_of(members[0].endpoint) as client:
            await client.transact([], [Delete(KEYS.state)])
        await check_recovered(group)


@pytest.mark.long
async def test_an_older_record_has_no_master_until_an_operator_says_so(tmp_path: Path) -> None:
    async with on_etcd(tmp_path) as (group, members):
        async with client_of(members[0].endpoint) as client:
            before = (await client.read(KEYS.state)).values[KEYS.state].value
            await switch(group)
            await switch(group)
            await client.transact([], [Put(KEYS.state, before)])
        await check_recovered(group)


@pytest.mark.long
async def test_an_etcd_from_a_backup_has_no_master_until_an_operator_says_so(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path) as (group, members):
        backup = await back_up(members[0], tmp_path / "backup")
        await group.acked_more()
        await switch(group)
        await switch(group)
        await restore(members[0], backup)
        await check_recovered(group)


@pytest.mark.long
async def test_a_backup_of_the_same_epoch_is_made_safe_by_deleting_its_records(
    tmp_path: Path,
) -> None:
    """What docs/etcd.md tells to do. The backup has a member that has missed much since."""
    async with on_etcd(tmp_path) as (group, members):
        backup = await back_up(members[0], tmp_path / "backup")
        master = await group.master()
        behind = next(name for name in NODES if name != master)
        await group.cluster.kill(behind)
        await group.acked_more(200)
        await group.cluster.stop()
        await restore(members[0], backup)
        async with client_of(members[0].endpoint) as client:
            keys = (await client.read(KEYS.prefix)).values
            assert behind in decode_state(keys[KEYS.state].value).isr
            await client.transact([], [Delete(key) for key in keys])
        await group.cluster.start()
        await check_recovered(group)


@pytest.mark.long
async def test_a_master_elected_from_such_a_backup_cuts_nothing_and_is_put_aside(
    tmp_path: Path,
) -> None:
    async with on_etcd(tmp_path) as (group, members):
        backup = await back_up(members[0], tmp_path / "backup")
        master = await group.master()
        behind, *rest = [name for name in NODES if name != master]
        await group.cluster.kill(behind)
        await group.acked_more(200)
        await trio.sleep(3)  # that all this is acknowledged is on the disks of the others
        await group.cluster.stop()
        await restore(members[0], backup)
        await group.cluster.start(behind)
        await group.is_opening(behind)
        for name in (master, *rest):
            await group.cluster.start(name)
            await group.is_in_quarantine(name)
        await group.cluster.stop()
        store = group.spec.node(behind).directory
        store.rename(store.with_name("moved-away"))
        async with client_of(members[0].endpoint) as client:
            keys = (await client.read(KEYS.prefix)).values
            await client.transact([], [Delete(key) for key in keys])
        await group.cluster.start()
        await check_recovered(group)


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
