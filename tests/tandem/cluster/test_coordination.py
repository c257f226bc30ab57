import errno
import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio

from tandem.cluster import (
    ClusterConfigError,
    CoordinatorAddressError,
    CoordinatorRunsError,
    CoordinatorSettings,
    CoordinatorStartError,
    CoordinatorStoppedError,
    LocalCluster,
    NoCoordinatorError,
)
from tandem.cluster_file.choices import CoordinatorKind
from tandem.coordinator.client import EtcdClient
from tandem.coordinator.interface import CoordinatorUnavailableError, Put
from tandem.coordinator.journal import JournalError
from tandem.wire.group_state import GroupKeys, LeaderRecord, NodeRecord, encode_record
from tandem.wire.store_layout import REPLICA_FILE
from tests.support.patience import PATIENCE_SECONDS, until
from tests.tandem.cluster.fakes import fake_command, fake_spec, fenced_spec
from tests.tandem.coordinator.real_etcd import free_ports, protect, running_etcd

pytestmark = pytest.mark.fault

KEYS: Final = GroupKeys("FakeCluster", "broker-a")

LEASE_SECONDS: Final = 600
"""Whoever waits for its end waits longer than a test may."""


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@asynccontextmanager
async def running(
    directory: Path, port: int, *names: str
) -> AsyncIterator[tuple[LocalCluster, EtcdClient]]:
    cluster = LocalCluster(fenced_spec(directory, port, *names), command=fake_command())
    async with cluster:
        await cluster.start()
        async with client_of(cluster) as client:
            yield cluster, client


@asynccontextmanager
async def client_of(cluster: LocalCluster) -> AsyncIterator[EtcdClient]:
    client = cluster.coordinator_client()
    try:
        yield client
    finally:
        await client.aclose()


async def register(
    client: EtcdClient, name: str, directory: Path, *, leads: bool = False, session: str = ""
) -> int:
    """What a real node does when it starts, and when it has won."""
    session = session or uuid.uuid4().hex
    store = directory / "data" / name
    store.mkdir(parents=True, exist_ok=True)
    (store / REPLICA_FILE).write_text(f'{{"tokens": ["{session}"]}}')
    lease_id = (await client.grant(LEASE_SECONDS)).lease_id
    own = NodeRecord(node=name, session=session, incarnation="i", epoch=0, end=0)
    puts = [Put(KEYS.node(name), encode_record(own), lease_id)]
    if leads:
        record = encode_record(LeaderRecord(node=name, session="s", epoch=1))
        puts.append(Put(KEYS.leader, record, lease_id))
    await client.transact([], puts)
    return lease_id


async def keys(client: EtcdClient) -> list[str]:
    return sorted(key.removeprefix(KEYS.prefix) for key in (await client.read(KEYS.prefix)).values)


async def wait_keys(client: EtcdClient, expected: list[str]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while await keys(client) != expected:
            await trio.sleep(0.005)


async def wait_roles(cluster: LocalCluster, *expected: str) -> None:
    await until(lambda: [node.role for node in cluster.status()] == list(expected))


async def test_a_classic_cluster_has_no_coordinator(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        await cluster.start()
        with pytest.raises(NoCoordinatorError):
            cluster.coordinator_client()
        with pytest.raises(NoCoordinatorError):
            await cluster.stop_coordinator()
    assert not (tmp_path / "data/coordinator").exists()


async def test_the_lease_of_a_killed_node_ends_at_once(tmp_path: Path, port: int) -> None:
    async with running(tmp_path, port, "a", "b") as (cluster, client):
        await register(client, "a", tmp_path, leads=True)
        await register(client, "b", tmp_path)
        started = trio.current_time()
        await cluster.kill("a")
        await wait_keys(client, ["node/b"])
        assert trio.current_time() - started < LEASE_SECONDS


async def test_a_node_that_ends_by_itself_is_released_too(tmp_path: Path, port: int) -> None:
    async with running(tmp_path, port, "a") as (cluster, client):
        await register(client, "a", tmp_path)
        pid = cluster.status()[0].pid
        assert pid is not None
        with trio.fail_after(PATIENCE_SECONDS):
            await trio.run_process(["kill", "-KILL", str(pid)])
        await wait_keys(client, [])


async def test_a_frozen_node_keeps_its_lease(tmp_path: Path, port: int) -> None:
    async with running(tmp_path, port, "a") as (cluster, client):
        await register(client, "a", tmp_path)
        cluster.pause("a")
        await trio.sleep(0.1)
        assert await keys(client) == ["node/a"]
        cluster.resume("a")


async def test_the_lease_of_the_next_life_is_left_alone(tmp_path: Path, port: int) -> None:
    async with running(tmp_path, port, "a") as (cluster, client):
        await register(client, "a", tmp_path)
        await cluster.restart("a")
        assert await keys(client) == []
        await register(client, "a", tmp_path)
        await trio.sleep(0.05)
        assert await keys(client) == ["node/a"]


async def test_the_lease_of_a_process_that_is_not_ours_is_left_alone(
    tmp_path: Path, port: int
) -> None:
    async with running(tmp_path, port, "a", "b") as (cluster, client):
        await register(client, "a", tmp_path, leads=True)
        await register(client, "b", tmp_path)
        # As if it ran elsewhere: this store knows nothing of its session.
        (tmp_path / "data/a" / REPLICA_FILE).write_text("{}")
        await cluster.kill("a")
        await cluster.kill("b")
        await wait_keys(client, ["leader", "node/a"])
        await cluster.start()
        assert await keys(client) == ["leader", "node/a"]


async def test_what_the_coordinator_knew_comes_back_and_the_dead_are_cleared_away(
    tmp_path: Path, port: int
) -> None:
    async with running(tmp_path, port, "a", "b") as (cluster, client):
        await client.transact([], [Put(KEYS.state, b"kept")])
        await cluster.stop_coordinator()
        await cluster.start_coordinator()
        await register(client, "a", tmp_path)
        await register(client, "b", tmp_path)
        # The lease of nobody: it stays.
        lease = await client.grant(LEASE_SECONDS)
        await client.transact([], [Put(KEYS.node("z"), b"", lease.lease_id)])
        # As if the supervisor had been killed: nobody is there to end leases.
        await cluster.stop_coordinator()
        await cluster.stop()
    async with running(tmp_path, port, "a", "b") as (_, client):
        assert await keys(client) == ["node/z", "state"]


async def test_roles_are_those_of_the_moment(tmp_path: Path, port: int) -> None:
    async with running(tmp_path, port, "a", "b") as (cluster, client):
        await wait_roles(cluster, "NODE", "NODE")
        lease_id = await register(client, "b", tmp_path, leads=True)
        await wait_roles(cluster, "FOLLOWER", "MASTER")
        await client.revoke(lease_id)
        await wait_roles(cluster, "NODE", "NODE")
        await register(client, "a", tmp_path, leads=True)
        await wait_roles(cluster, "MASTER", "FOLLOWER")
        await cluster.stop("b")
        await wait_roles(cluster, "MASTER", "NODE")
        await client.transact([], [Put(KEYS.leader, b"of another program")])
        await wait_roles(cluster, "NODE", "NODE")
        await cluster.stop_coordinator()
        await cluster.start_coordinator()
        await client.transact([], [Put(KEYS.leader, _leader("a"))])
        await wait_roles(cluster, "MASTER", "NODE")


def _leader(name: str) -> bytes:
    return encode_record(LeaderRecord(node=name, session="s", epoch=1))


async def test_masters_are_waited_for_but_not_for_ever(tmp_path: Path, port: int) -> None:
    async with running(tmp_path, port, "a", "b") as (cluster, client):
        started = trio.current_time()
        await cluster.wait_masters(0.1)
        assert 0.1 <= trio.current_time() - started < PATIENCE_SECONDS
        assert (cluster.status()[1].role, cluster.coordinator_trouble) == ("NODE", "")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.wait_masters, LEASE_SECONDS)
            await register(client, "b", tmp_path, leads=True)
        assert cluster.status()[1].role == "MASTER"
        with trio.fail_after(PATIENCE_SECONDS):
            await cluster.wait_masters(LEASE_SECONDS)


async def test_a_classic_cluster_has_its_masters(tmp_path: Path) -> None:
    async with LocalCluster(fake_spec(tmp_path, "a"), command=fake_command()) as cluster:
        await cluster.start()
        with trio.fail_after(PATIENCE_SECONDS):
            await cluster.wait_masters(LEASE_SECONDS)
        assert cluster.coordinator_trouble == ""


async def test_why_it_is_not_known_who_is_master_is_reported(tmp_path: Path, port: int) -> None:
    async with running(tmp_path, port, "a") as (cluster, client):
        await cluster.stop_coordinator()
        await until(lambda: "Connection refused" in cluster.coordinator_trouble)
        await cluster.start_coordinator()
        await register(client, "a", tmp_path, leads=True)
        await wait_roles(cluster, "MASTER")
        assert cluster.coordinator_trouble == ""


async def test_a_coordinator_that_refuses_is_not_waited_for(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as members:
        await members[0].wait_healthy()
        await protect(members[0], "root", "secret")
        spec = msgspec.structs.replace(
            fenced_spec(tmp_path, 1, "a"),
            coordinator=CoordinatorSettings(
                kind=CoordinatorKind.ETCD, endpoints=[members[0].endpoint]
            ),
        )
        async with LocalCluster(spec, command=fake_command()) as cluster:
            await cluster.start()
            with trio.fail_after(PATIENCE_SECONDS):
                await cluster.wait_masters(LEASE_SECONDS)
            assert "set user and password_file" in cluster.coordinator_trouble


async def test_the_coordinator_can_be_stopped_and_frozen_under_the_nodes(
    tmp_path: Path, port: int
) -> None:
    async with running(tmp_path, port, "a") as (cluster, client):
        await register(client, "a", tmp_path)
        cluster.pause_coordinator()
        with trio.move_on_after(0.2) as waited:
            await client.read(KEYS.prefix)
        assert waited.cancelled_caught
        cluster.resume_coordinator()
        assert await keys(client) == ["node/a"]
        await cluster.stop_coordinator()
        with pytest.raises(CoordinatorUnavailableError, match="no connection to"):
            await client.read(KEYS.prefix)
        with pytest.raises(CoordinatorStoppedError):
            cluster.pause_coordinator()
        # The coordinator cannot be reached; the node is gone all the same.
        await cluster.kill("a")
        await cluster.start_coordinator()
        with pytest.raises(CoordinatorRunsError):
            await cluster.start_coordinator()
        assert await keys(client) == ["node/a"]


async def test_a_coordinator_whose_journal_fails_is_started_again_and_says_so(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody restarts anything. While the disk fails it is tried again, and status says why."""
    is_failing = False
    real = os.fdatasync, os.fsync

    def sync(fd: int, which: int = 0) -> None:
        if is_failing and "/coordinator" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real[which](fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(os, "fsync", partial(sync, which=1))
    async with running(tmp_path, port, "a") as (cluster, client):
        await register(client, "a", tmp_path, leads=True)
        await wait_roles(cluster, "MASTER")
        assert cluster.coordinator_last_end == ""
        is_failing = True
        with pytest.raises(CoordinatorUnavailableError, match="journal failed"):
            await client.transact([], [Put(KEYS.state, b"unknown")])
        await until(lambda: "check the disk" in cluster.coordinator_trouble)
        with pytest.raises(CoordinatorStoppedError):
            cluster.pause_coordinator()
        is_failing = False
        await wait_roles(cluster, "MASTER")
        await until(lambda: cluster.coordinator_trouble == "")
        assert "Input/output error" in cluster.coordinator_last_end
        await client.transact([], [Put(KEYS.state, b"known")])
        is_failing = True
        with pytest.raises(CoordinatorUnavailableError, match="journal failed"):
            await client.transact([], [Put(KEYS.state, b"unknown")])
        await until(lambda: "check the disk" in cluster.coordinator_trouble)
        # One that is waiting for its disk can be stopped, and is not started by itself any more.
        await cluster.stop_coordinator()
        is_failing = False
        await until(lambda: "no connection" in cluster.coordinator_trouble)
        await cluster.start_coordinator()
        await wait_roles(cluster, "MASTER")


async def test_a_port_that_is_taken_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = LocalCluster(fenced_spec(tmp_path, port, "a"), command=fake_command())
        async with cluster:
            with pytest.raises(CoordinatorAddressError, match=r"coordinator\.port") as caught:
                await cluster.start()
            assert (caught.value.address, caught.value.port) == ("127.0.0.1", port)
            assert cluster.status()[0].starts_count == 0


async def test_a_damaged_journal_stops_the_start(tmp_path: Path, port: int) -> None:
    (tmp_path / "data/coordinator").mkdir(parents=True)
    (tmp_path / "data/coordinator/journal").write_bytes(b"not a journal")
    async with LocalCluster(fenced_spec(tmp_path, port, "a"), command=fake_command()) as cluster:
        with pytest.raises(CoordinatorStartError) as caught:
            await cluster.start()
        assert isinstance(caught.value.__cause__, JournalError)
        assert caught.value.__cause__.position == 0


async def test_settings_of_etcd_that_cannot_be_used_stop_the_start(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(
        fenced_spec(tmp_path, 1, "a"),
        coordinator=CoordinatorSettings(
            kind=CoordinatorKind.ETCD,
            endpoints=["127.0.0.1:1"],
            user="u",
            password_file=str(tmp_path / "absent"),
        ),
    )
    async with LocalCluster(spec, command=fake_command()) as cluster:
        with pytest.raises(ClusterConfigError, match=r"password_file .*absent"):
            await cluster.start()


async def test_leases_of_the_dead_are_ended_in_etcd_too(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as members:
        await members[0].wait_healthy()
        spec = msgspec.structs.replace(
            fenced_spec(tmp_path, 1, "a"),
            coordinator=CoordinatorSettings(
                kind=CoordinatorKind.ETCD, endpoints=[members[0].endpoint]
            ),
        )
        async with LocalCluster(spec, command=fake_command()) as cluster:
            await cluster.start()
            async with client_of(cluster) as client:
                await register(client, "a", tmp_path, leads=True)
                await wait_roles(cluster, "MASTER")
                await cluster.kill("a")
                await wait_keys(client, [])
    assert not (tmp_path / "data/coordinator").exists()
