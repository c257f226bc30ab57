"""One byte changes in one file of a stopped node: its group goes on, and the node is whole again.

A file has several kinds of bytes: its first ones say what it is, in its middle is what it holds,
and the last ones that are used end it. One of each is changed in each file that there is.

    starts, and is in sync     what was changed was healed, relearned, built anew, or means nothing
    does not start             says which file, and the group goes on without it
"""

from pathlib import Path

import pytest
import trio

from tandem.client import Ack, Producer
from tandem.cluster import NodeStartError
from tandem.wire.message import Message
from tests.faults.real_group import NODES, TOPIC, Group, under_load, write_group
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.fault, pytest.mark.slow]

BIG_MESSAGES = 20
"""Of 60,000 bytes: some five files of the log."""

IN_THE_ORDINARY_RUN = ("commitlog/00000000000000000000", "replica.json", "checkpoint")

MEANS_NOTHING = ("lock", "abort")


async def send_big(group: Group) -> None:
    async with Producer(group.spec.name_servers, "big", ack=Ack.REPLICATED) as producer:
        for count in range(BIG_MESSAGES):
            key = f"big-{count}"
            group.sent.add(key)
            await producer.send(Message(TOPIC, bytes(60_000), keys=key))
            group.acked.add(key)


def files_of(directory: Path) -> list[str]:
    """The files that a stopped node has, by their names below its directory, none of them empty."""
    names = [
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.stat().st_size
    ]
    return sorted(n for n in names if (directory / n).is_file() and n not in MEANS_NOTHING)


def places_in(path: Path) -> list[int]:
    """One byte of each kind: near the start, in the middle of what is used, and at its end."""
    used = len(path.read_bytes().rstrip(b"\0"))
    return sorted({0, 5, used // 2, max(0, used - 2)} & set(range(max(1, used))))


def flip(path: Path, position: int) -> bytes:
    """Change a bit; return what was in the file."""
    before = path.read_bytes()
    after = bytearray(before)
    after[position] ^= 0x10
    path.write_bytes(bytes(after))
    return before


async def is_whole(group: Group, node: str) -> None:
    """Have a node look through its disk, and wait until it knows of no damage and has looked."""
    await group.scrub(node)
    with trio.fail_after(PATIENCE_SECONDS):
        while (status := await group.status(node)) is None or status.damage:
            await trio.sleep(0.05)


async def flip_each(
    group: Group, node: str, names: tuple[str, ...] = (), *, places_max: int = 4
) -> list[str]:
    """Change one byte after the other; return where the node did not start, and what it said."""
    directory = group.spec.node(node).directory
    refused = []
    await group.cluster.kill(node)
    for name in names or files_of(directory):
        for position in places_in(directory / name)[-places_max:]:
            before = flip(directory / name, position)
            try:
                await group.cluster.start(node)
            except NodeStartError as error:
                said = error.log_file.read_text().splitlines()[-1]
                refused.append(f"{name} at {position}: {said}")
                assert Path(name).name in said or name.partition("/")[0] in said, refused[-1]
                (directory / name).write_bytes(before)
                await group.cluster.start(node)
            await group.in_sync(len(NODES))
            await is_whole(group, node)
            await group.acked_more(3)
            await group.cluster.kill(node)
            if not (directory / name).exists():
                break
    await group.cluster.start(node)
    return refused


async def test_a_byte_that_changes_in_one_of_the_most_important_files_is_healed(
    tmp_path: Path,
) -> None:
    async with under_load(write_group(tmp_path)) as group:
        await send_big(group)
        master = await group.master()
        node = next(name for name in NODES if name != master)
        assert await flip_each(group, node, IN_THE_ORDINARY_RUN, places_max=1) == []


@pytest.mark.long
async def test_a_byte_that_changes_in_any_file_of_a_node_breaks_no_promise(tmp_path: Path) -> None:
    async with under_load(write_group(tmp_path)) as group:
        await send_big(group)
        master = await group.master()
        node = next(name for name in NODES if name != master)
        await flip_each(group, node)
