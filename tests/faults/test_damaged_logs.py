"""Bits flip in the logs of a group of real nodes, files are gone and cut: nothing is lost by it.

One cluster for all of it, one kind of damage after the other. At the end all logs are equal, byte
for byte, and every consumer gets every message.
"""

from pathlib import Path

import pytest
import trio

from tandem.client import Admin, PullConsumer
from tandem.wire.ha_status import FencedStatus
from tandem.wire.message import Message
from tests.faults.real_group import (
    NODES,
    PATIENT,
    TOPIC,
    Group,
    PatientCluster,
    check_logs,
    read_log,
    write_group,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.support.processes import TANDEM

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("damaged logs")]

FILE_BYTES = 262_144
BODY = b"MARK" + bytes(range(256)) * 39


class DamagedGroup(Group):
    """A group whose logs are damaged on purpose."""

    def log_files(self, node: str) -> list[Path]:
        return sorted((self.spec.node(node).directory / "commitlog").iterdir())

    async def fill(self, files: int) -> None:
        """Send until the log has so many more files."""
        async with self.safe_producer("filler") as producer:
            for count in range(files * FILE_BYTES // len(BODY)):
                key = f"fill-{len(self.acked)}-{count}"
                self.sent.add(key)
                await producer.send(Message(TOPIC, BODY, keys=key))
                self.acked.add(key)

    async def has_fingerprints(self) -> None:
        """Wait until every node has those of all files but the last."""
        with trio.fail_after(PATIENCE_SECONDS):
            for node in NODES:
                directory = self.spec.node(node).directory / "fingerprints"
                while (status := await self.status(node)) is None or (
                    len(list(directory.glob("*"))) < status.log_end // FILE_BYTES
                ):
                    await trio.sleep(0.1)

    async def ha(self, *words: str) -> str:
        """Run `tandem ha`, as an operator would."""
        with trio.fail_after(PATIENCE_SECONDS):
            done = await trio.run_process(
                [*TANDEM, "ha", *words, "-c", str(self.spec.file)],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    async def healed(self, node: str, count: int) -> FencedStatus:
        """Wait until a node has healed so many places in all, and is whole."""
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                status = await self.status(node)
                if status and len(status.healed) >= count and not status.damage:
                    return status
                await trio.sleep(0.05)

    async def consume_all(self) -> set[str]:
        """Return the keys of all messages that a consumer gets from the beginning."""
        async with PullConsumer(self.spec.name_servers, "readers") as consumer:
            with trio.fail_after(PATIENCE_SECONDS):
                return {each.keys async for each in consumer.messages(TOPIC, until_end=True)}

    async def scrubbed(self, node: str, count: int) -> None:
        """Have a node look at its log; wait until it has healed so many places in all."""
        assert "looks at its log" in await self.ha("scrub", node)
        await self.healed(node, count)

    def flip(self, node: str, file: int, at: int) -> None:
        """Change a bit of the first record of a file in which `at` comes."""
        path = self.log_files(node)[file]
        data = path.read_bytes()
        flip(path, data.index(b"MARK", at))


def last_file(status: FencedStatus) -> int:
    """Return the number of the file in which the log ends."""
    return status.log_end // FILE_BYTES


def flip(file: Path, at: int) -> None:
    with file.open("r+b") as log:
        log.seek(at)
        byte = log.read(1)[0]
        log.seek(at)
        log.write(bytes([byte ^ 4]))


async def while_stopped(group: DamagedGroup, node: str) -> None:
    """Damage the log of a follower that is stopped, in each way; it heals when it is back."""
    # A body in the oldest file, and a byte that no checksum of RocketMQ's covers: a property's.
    await group.cluster.stop(node)
    group.flip(node, 0, 5_000)
    properties = group.log_files(node)[1]
    flip(properties, properties.read_bytes().index(b"UNIQ_KEY", 5_000))
    await group.cluster.start(node)
    await group.in_sync(len(NODES))
    await group.scrubbed(node, 2)

    # What stops the start: the file that every start walks. It comes from the others first.
    await group.cluster.stop(node)
    group.flip(node, last_file(await group.answer(await group.master())), 0)
    await group.cluster.start(node)
    assert "body CRC" in (await group.healed(node, 3)).healed[-1].reason

    # Files that are gone, or were cut: stand-ins of zeros take their places until then.
    await group.cluster.stop(node)
    files = group.log_files(node)
    files[0].unlink()
    with files[2].open("r+b") as log:
        log.truncate(100_000)
    await group.cluster.start(node)
    await group.healed(node, 5)
    await group.in_sync(len(NODES))


async def both_followers(group: DamagedGroup, first: str, second: str) -> None:
    """Damage both at different places while they run: each has what the other lacks."""
    counts = [len((await group.answer(node)).healed) for node in (first, second)]
    group.flip(first, 2, 5_000)
    group.flip(second, 0, 5_000)
    await group.ha("scrub", second)
    await group.scrubbed(first, counts[0] + 1)
    await group.healed(second, counts[1] + 1)


async def without_a_log(group: DamagedGroup, node: str) -> None:
    """Remove all of a follower's log: it copies it anew, as another replica."""
    status = await group.answer(node)
    await group.cluster.stop(node)
    for file in group.log_files(node):
        file.unlink()
    await group.cluster.start(node)
    await group.in_sync(len(NODES))
    again = await group.answer(node)
    assert again.incarnation != status.incarnation
    assert again.log_start == status.log_start
    assert list((group.spec.node(node).directory / "set-aside").glob("lost-log-*/consumequeue"))


async def test_what_has_changed_at_rest_is_found_and_healed_and_nobody_gets_less(
    tmp_path: Path,
) -> None:
    spec = write_group(tmp_path, coordinator=PATIENT)
    async with PatientCluster(spec) as cluster, Admin(spec.name_servers) as admin:
        await cluster.start()
        group = DamagedGroup(spec, cluster, admin)
        await group.in_sync(len(NODES))
        await group.fill(4)
        await group.has_fingerprints()
        master = await group.master()
        first, second = (node for node in NODES if node != master)

        await while_stopped(group, first)
        assert await group.master() == master
        await both_followers(group, first, second)
        assert await group.master() == master

        # The master while it runs: another takes its place, and it heals from that one.
        epoch = await group.epoch()
        group.flip(master, 1, 5_000)
        await group.scrubbed(master, 1)
        heir = await group.master(not_this=master)
        assert await group.epoch() > epoch
        await group.in_sync(len(NODES))
        said = await group.ha("status")
        for node in NODES:
            assert f"log of {node}: healed from" in said, said
        status = await group.answer(heir)
        assert "its log is damaged from" in status.last_switch_reason

        heir = await group.master()
        await without_a_log(group, next(node for node in NODES if node != heir))
        assert await group.consume_all() == group.acked
        await group.ends_are_equal()
    check_logs(spec, group.acked, group.sent)
    logs = [read_log(spec.node(node).directory) for node in NODES]
    assert logs[0] == logs[1] == logs[2]
