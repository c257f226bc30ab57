"""What is done to the coordinator of a group under load: a real etcd, or the embedded one."""

import json
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from tandem.coordinator.client import EtcdClient
from tests.faults.real_group import Group, under_load, write_group
from tests.tandem.coordinator.real_etcd import Etcd, running_etcd

LEASE_SECONDS: Final = 5.0
"""The default. An election among etcd's members, 1 to 2 s, must fit into it."""

LEASE_ENDS_SECONDS: Final = LEASE_SECONDS + 2.0
"""By now a lease that nobody renewed has ended, and everybody knows."""


def coordinator(members: Sequence[Etcd]) -> dict[str, Any]:
    """`coordinator:` of a cluster file; without members it is the embedded one."""
    lease = {"lease_ttl_ms": round(LEASE_SECONDS * 1000)}
    if not members:
        return lease
    return lease | {"kind": "etcd", "endpoints": [member.endpoint for member in members]}


@asynccontextmanager
async def on_etcd(
    directory: Path, members_count: int = 1, arguments: Sequence[str] = ()
) -> AsyncIterator[tuple[Group, list[Etcd]]]:
    """A group under load, and the members of its etcd; without members it is the embedded one."""
    with running_etcd(directory, members_count, arguments=arguments) as members:
        for member in members:
            await member.wait_healthy()
        spec = write_group(directory, coordinator=coordinator(members))
        async with under_load(spec) as group:
            yield group, members


def client_of(member: Etcd) -> aclosing[EtcdClient]:
    """A client of one member; `async with`."""
    return aclosing(EtcdClient([member.endpoint]))


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
