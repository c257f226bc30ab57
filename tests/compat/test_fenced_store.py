"""What a fenced group leaves on disk, seen by RocketMQ 5.3.3.

A group changes its master, and the old one's log is cut. Each node's directory then has a journal
in the log, a list of epochs, a replica file, and what was cut. RocketMQ's DefaultMessageStore opens
them all and reads what we read; its EpochFileCache reads our list of epochs, and we read its own.
"""

import shutil
from pathlib import Path
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from ha.fenced.epoch_file import EpochFile
from store.machine.real_disk import RealDisk
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.message_properties import encode_properties
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.compat.probe import Probe, Settings, differences
from tests.node.world import NAMES, World, fenced_cluster, open_world
from tests.store.store_world import STORE_HOST, a_message, files_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("rocketmq")]

SETTINGS: Final = Settings(
    commit_log_bytes=1_048_576, consume_queue_bytes=6_000, max_hash_slot_num=50, max_index_num=1_000
)
BODY_BYTES: Final = 40_000
"""So that the log has several files."""
UNSAFE: Final = 1_000
"""Four messages from here on are async, sent when links stall; the first may be on its way then."""


async def send(world: World, name: str, number: int, *, wait: bool = True) -> None:
    """Send message `number` with a key of its own; it has to be taken."""
    properties = {"WAIT": str(wait).lower(), "KEYS": f"k{number}", "UNIQ_KEY": f"U{number}"}
    header = SendMessageRequestHeaderV2(
        "PG", "T", "TBW102", 4, number % 4, 0, 1, 0, encode_properties(properties).decode()
    )
    body = b"%d:" % number
    async with world.client(world.address(name)) as client:
        answer = await client.call(
            RequestCode.SEND_MESSAGE_V2, header, body.ljust(BODY_BYTES, b".")
        )
        assert answer.code == 0, answer.remark


async def change_masters(world: World) -> str:
    """Kill a master that has messages nobody else has; return its name once it follows again."""
    await world.start(*NAMES)
    old = await world.master()
    epoch = (await world.status(old)).epoch
    for number in range(30):
        await send(world, old, number)
    async with world.client(world.address(old)) as client:
        commit = UpdateConsumerOffsetRequestHeader("g", "T", 0, 3)
        assert (await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
    rest = [name for name in NAMES if name != old]
    for name in rest:
        world.network.stall(world.address(old), world.address(name))
    for number in range(UNSAFE, UNSAFE + 4):
        await send(world, old, number, wait=False)
    await world.kill(old)
    world.network.heal_all()
    new = await world.master(*rest, after=epoch)
    for number in range(30, 40):
        await send(world, new, number)
    await world.start(old)
    await trio.sleep(10)
    assert (await world.status(old)).role == "FOLLOWER"
    ends = {(await world.status(name)).log_end for name in NAMES}
    assert len(ends) == 1
    return old


def write_down(world: World, name: str) -> Path:
    """Copy what is on a simulated disk to the real one."""
    directory = world.config.node(name).directory
    for path, content in files_of(world.disks[name], below=str(directory)).items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)
    return directory


async def history(config: ClusterConfig) -> dict[str, Path]:
    """Return the directories of three nodes, the one whose log was cut first."""
    async with open_world(config) as world:
        old = await change_masters(world)
        names = [old, *(name for name in NAMES if name != old)]
        for name in names:
            await world.stop(name)
        return {name: write_down(world, name) for name in names}


async def test_rocketmq_opens_what_a_fenced_group_left(
    tmp_path: Path, autojump_clock: MockClock, rocketmq: Probe, ours: Probe
) -> None:
    """DefaultMessageStore: load, recover, get, look, query, put; EpochFileCache: the epochs."""
    directories = await history(fenced_cluster(tmp_path))
    cut = next(iter(directories.values()))
    assert (cut / "replica.json").exists()
    assert list((cut / "truncated").iterdir())
    logs = []
    for name, directory in directories.items():
        copy = Path(shutil.copytree(directory, tmp_path / f"copy-of-{name}"))
        assert ours.open(copy, SETTINGS)
        assert rocketmq.open(directory, SETTINGS)
        seen, theirs = ours.look(copy), rocketmq.look(directory)
        assert differences(seen, theirs) == []
        numbers = [
            int(bytes.fromhex(m.body).split(b":")[0]) for m in seen.messages if m.topic == "T"
        ]
        assert [number for number in numbers if number < UNSAFE] == list(range(40))
        assert UNSAFE + 3 not in numbers
        assert any(m.topic == JOURNAL_TOPIC for m in theirs.messages)
        assert theirs.keys["T k39"] == theirs.keys["T U39"] != []
        assert f"T k{UNSAFE + 3}" not in theirs.keys
        logs.append(seen.messages)
        entries = [(e.epoch, e.start) for e in EpochFile(RealDisk(), str(directory)).entries]
        assert rocketmq.read_epochs(directory / "epochFileCheckpoint") == entries
        assert [epoch for epoch, _ in entries] == [1, 2]
        assert rocketmq.put(directory, [a_message(40, "T")], STORE_HOST) == ["PUT_OK"]
        assert rocketmq.look(directory).messages[:-1] == theirs.messages
    assert logs[0] == logs[1] == logs[2]
    rocketmq.close(list(directories.values()))
    ours.halt()


def test_we_read_the_epochs_that_rocketmq_wrote(tmp_path: Path, rocketmq: Probe) -> None:
    """EpochFileCache.appendEntry; the file is ours byte for byte, and ours is read back."""
    entries = [(1, 0), (2, 4_096), (7, 2**40), (2**31 - 1, 2**62)]
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours = EpochFile(RealDisk(), str(tmp_path / "ours"))
    for epoch, start in entries:
        ours.append(epoch, start)
    theirs = tmp_path / "theirs" / "epochFileCheckpoint"
    rocketmq.write_epochs(theirs, entries)
    assert theirs.read_bytes() == (tmp_path / "ours" / "epochFileCheckpoint").read_bytes()
    assert EpochFile(RealDisk(), str(tmp_path / "theirs")).entries == ours.entries
    assert rocketmq.read_epochs(tmp_path / "ours" / "epochFileCheckpoint") == entries


def test_no_epochs_are_read_alike(tmp_path: Path, rocketmq: Probe) -> None:
    """An empty list is a file of ours too; RocketMQ never writes one."""
    epochs = EpochFile(RealDisk(), str(tmp_path))
    epochs.append(1, 100)
    epochs.trim_to_log(0)
    assert rocketmq.read_epochs(tmp_path / "epochFileCheckpoint") == []
