"""Directories of whole clusters, kept for ever: one of each kind of group and released version.

    python -m tests.faults.golden_directories OUT     writes classic.tar.xz and fenced.tar.xz

It has to be run by the version whose directories these are to be: from a checkout of it, into which
this file was copied. What is in them, `check` looks for, through clients, with any later version.
"""

import secrets
import sys
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from tandem.client import Admin, PoppedMessage, Producer, PullConsumer, SimpleConsumer
from tandem.client.cluster_access import ClusterAccess
from tandem.cluster import ClusterSpec, LocalCluster, read_spec
from tandem.cluster.spec import node_command
from tandem.testing import write_cluster_file
from tandem.wire.access_control import PolicyEntryInfo
from tandem.wire.message import Message
from tandem.wire.user_quota import UserQuota
from tests.support.patience import PATIENCE_SECONDS

KINDS: Final = ("classic", "fenced")

MESSAGES: Final = 20
COMMITTED: Final = 7
"""Where the group `readers` is in the one queue of `Golden`."""

SETTINGS: Final[dict[str, Any]] = {
    "store": {
        "mapped_file_size_commit_log_bytes": 262_144,
        "mapped_file_size_consume_queue_bytes": 6_000,
        "max_hash_slot_num": 500,
        "max_index_num": 2_000,
        "timer_wheel_enable": True,
    },
    "broker": {"stop_grace_ms": 500, "register_broker_interval_ms": 500},
}

START_SECONDS_MAX: Final = 900.0

LATER_MS: Final = 60_000
"""Timers are due so long after the directories are made, and so when they are opened."""

POPPED: Final = 5
DONE: Final = 2
"""Of five messages that a consumer had, it has acknowledged so many."""


def write_golden(directory: Path, kind: str) -> ClusterSpec:
    """Write a cluster file for such directories, on addresses of this test only."""
    patient = {"coordinator": {"lease_ttl_ms": 30_000}} if kind == "fenced" else {}
    sections = SETTINGS | patient
    slaves = 2 if kind == "fenced" else 1
    return read_spec(write_cluster_file(directory, slaves, sections, kind=kind))  # type: ignore[arg-type]


@asynccontextmanager
async def up(
    spec: ClusterSpec, command: Callable[[Path, str], list[str]] = node_command
) -> AsyncIterator[LocalCluster]:
    """The cluster, for as long as the block takes."""
    async with LocalCluster(spec, command=command) as cluster:
        await cluster.start(ready_seconds_max=START_SECONDS_MAX)
        await cluster.wait_masters(PATIENCE_SECONDS)
        yield cluster


async def fill(spec: ClusterSpec) -> None:
    """Put in what `check` looks for."""
    access = ClusterAccess(spec.name_servers, secret=spec.read_secret())
    async with Admin(access) as admin:
        for topic in ("Golden", "Popped", "Later", "Paid"):
            await admin.create_topic(topic, queue_nums=1)
        await admin.create_user("alice", "alice's secret")
        await admin.grant("alice", [PolicyEntryInfo("Topic:Golden", ["Pub"], None, "Allow")])
        await admin.alter_user("alice", quota=UserQuota(requests_per_second=100))
    async with Producer(spec.name_servers, "golden", resend_until_ok=True) as producer:
        for number in range(MESSAGES):
            body = b"golden-%d" % number
            await producer.send(Message("Golden", body, keys=f"k{number}", tags="T"))
        for number in range(POPPED):
            await producer.send(Message("Popped", b"popped-%d" % number))
        due_ms = time.time_ns() // 1_000_000 + LATER_MS
        await producer.send(Message("Later", b"at its time", deliver_time_ms=due_ms))
        await producer.send(Message("Later", b"a minute late", delay_time_level=5))
        async with producer.transaction(Message("Paid", b"committed")):
            pass
        async with producer.transaction(Message("Paid", b"rolled back")) as transaction:
            transaction.rollback()
        async with producer.transaction(Message("Paid", b"open")) as transaction:
            transaction.unknown()
    async with PullConsumer(spec.name_servers, "readers") as reader:
        (queue,) = await reader.fetch_message_queues("Golden")
        await reader.update_consume_offset(queue, COMMITTED)
    async with SimpleConsumer(spec.name_servers, "poppers") as popper:
        got: list[PoppedMessage] = []
        while len(got) < POPPED:
            got += await popper.receive("Popped", POPPED - len(got), invisible_ms=LATER_MS)
        assert await popper.ack(got[:DONE])


async def check(spec: ClusterSpec) -> None:
    """Look for all of it."""
    access = ClusterAccess(spec.name_servers, secret=spec.read_secret())
    async with Admin(access) as admin:
        user = await admin.user("alice")
        entries = [entry for each in user.policies for entry in each.entries or ()]
        assert [entry.resource for entry in entries] == ["Topic:Golden"]
        assert user.quota == UserQuota(requests_per_second=100)
    async with PullConsumer(spec.name_servers, "readers") as reader:
        golden = [each async for each in reader.messages("Golden", until_end=True)]
        assert [each.body for each in golden] == [b"golden-%d" % n for n in range(MESSAGES)]
        assert [each.keys for each in golden] == [f"k{n}" for n in range(MESSAGES)]
        (queue,) = await reader.fetch_message_queues("Golden")
        assert await reader.fetch_consume_offset(queue) == COMMITTED
        paid = [each.body async for each in reader.messages("Paid", until_end=True)]
        assert paid == [b"committed"]
        later: set[bytes] = set()
        while later != {b"at its time", b"a minute late"}:
            await trio.sleep(0.2)
            found = [each.body async for each in reader.messages("Later", until_end=True)]
            assert len(found) == len(set(found)), found
            later = set(found)
    async with SimpleConsumer(spec.name_servers, "poppers") as popper:
        again: set[bytes] = set()
        while len(again) < POPPED - DONE:
            for message in await popper.receive("Popped"):
                again.add(message.body)
                assert await popper.ack(message)
        assert again == {b"popped-%d" % number for number in range(DONE, POPPED)}
        assert not await popper.receive("Popped", wait_ms=0)


async def check_new(spec: ClusterSpec) -> None:
    """Send something, and read it: the cluster goes on."""
    key = secrets.token_hex(8)
    async with Producer(spec.name_servers, "golden", resend_until_ok=True) as producer:
        await producer.send(Message("Golden", key.encode()))
    async with PullConsumer(spec.name_servers, "others") as reader:
        bodies = [each.body async for each in reader.messages("Golden", until_end=True)]
    assert key.encode() in bodies


def pack(directory: Path, archive: Path) -> None:
    """Keep what is in the directory `data`, but logs, as one small file."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted((directory / "data").rglob("*")):
            if path.is_file() and "logs" not in path.relative_to(directory).parts:
                tar.add(path, path.relative_to(directory))


def unpack(archive: Path, directory: Path) -> None:
    """Put it there again."""
    with tarfile.open(archive) as tar:
        tar.extractall(directory)


async def _make(directory: Path, archive: Path, kind: str) -> None:
    spec = write_golden(directory, kind)
    async with up(spec) as cluster:
        await fill(spec)
        await cluster.stop()
    pack(directory, archive)


def main(out: Path) -> None:
    """Write both archives into a directory."""
    out.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as directory:
            trio.run(_make, Path(directory), out / f"{kind}.tar.xz", kind)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
