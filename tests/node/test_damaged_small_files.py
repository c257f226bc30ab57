"""Whatever becomes of one small file of one node, its group goes on and the node comes back to it.

Each bit of each kind of file is flipped where that file is tested; here a node runs on the damage.
"""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from ha.errors import HAError
from node.simulated.disk import SimulatedDisk
from store.machine.errors import StoreError
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.node.world import NAMES, World, bodies, fenced_cluster, open_world
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

SAY_NOTHING = {"lock", "abort"}


def small_files(disk: SimulatedDisk, directory: str) -> list[str]:
    """The files of a node beside its log, queues and index."""
    return [
        f"{folder}/{name}"
        for folder in (directory, f"{directory}/config")
        for name, _ in disk.list_files(folder)
        if name not in SAY_NOTHING
    ]


def damages(whole: bytes) -> dict[str, bytes | None]:
    at = min(len(whole) // 3, 30)
    flipped = bytearray(whole)
    flipped[at] ^= 4
    return {"flipped": bytes(flipped), "cut": whole[:at], "empty": b"", "gone": None}


def damage(disk: SimulatedDisk, path: str, content: bytes | None) -> None:
    """The time of the file stays, as on a disk that rots."""
    if content is None:
        disk.remove(path)
    elif disk.exists(path) and len(content) == disk.open(path).size:
        disk.open(path).buffer[:] = content
        disk.open(path).made_durable(content)
    else:
        disk.replace(path, content)


async def start(world: World, name: str) -> str:
    """Start a node; return why it does not start, if it does not."""
    refusal = ""
    try:
        await world.start(name)
    except* (StoreError, HAError) as group:
        refusal = str(group.exceptions[0])
    return refusal


async def is_whole(world: World, name: str, sent: list[bytes]) -> bool:
    master = await world.master()
    if name not in (await world.status(master)).isr:
        return False
    async with world.client(world.address(name)) as client:
        pulled = await client.pull()
        return pulled.code == 0 and bodies(pulled) == sent


@pytest.mark.thorough
async def test_a_node_comes_back_with_any_small_file_damaged_or_says_what_to_do(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = fenced_cluster(tmp_path)
    async with open_world(config) as world:
        await world.start(*NAMES)
        master = await world.master()
        sent = [b"one", b"two"]
        async with world.client(world.address(master)) as client:
            for body in sent:
                assert (await client.send(body)).code == 0
            header = UpdateConsumerOffsetRequestHeader("g", "T", 0, 2)
            answer = await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            assert answer.code == 0, answer.remark
        await trio.sleep(12)
        name = next(other for other in NAMES if other != master)
        directory = str(config.node(name).directory)
        refused = set()
        names = small_files(world.disks[name], directory)
        assert len(names) >= 11, names
        for path in names:
            whole = world.disks[name].read(path) or b""
            for what in ("flipped", "cut", "empty", "gone"):
                await world.kill(name)
                before = world.disks[name].crashed()
                # Not all that is gone is there again at once: a backup is not.
                whole = before.read(path) or whole
                damage(world.disks[name], path, damages(whole)[what])
                refusal = await start(world, name)
                if refusal:
                    assert path in refusal
                    assert ";" in refusal, "no remedy"
                    refused.add((path.removeprefix(f"{directory}/"), what))
                    world.disks[name] = before
                    await world.start(name)
                with trio.fail_after(PATIENCE_SECONDS):
                    while not await is_whole(world, name, sent):
                        await trio.sleep(0.5)
                # One file at a time: what was damaged has been written again by then.
                await trio.sleep(6)
        assert refused == REFUSED
        sent.append(b"three")
        async with world.client(world.address(await world.master())) as client:
            assert (await client.send(sent[-1])).code == 0
            assert bodies(await client.pull()) == sent
            query = QueryConsumerOffsetRequestHeader("g", "T", 0)
            answer = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, query)
            assert answer.decode_header(OffsetResponseHeader).offset == 2


REFUSED = {("checkpoint", "cut"), ("checkpoint", "empty")}
"""A checkpoint of another length may be RocketMQ's doing; an operator deletes it."""
