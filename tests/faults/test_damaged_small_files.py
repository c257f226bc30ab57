"""A byte of a small file of one node changes while it is down; its group never notices."""

import re
from pathlib import Path

import pytest
import trio

from tests.faults.real_group import NODES, PATIENT, under_load, write_group
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.fault, pytest.mark.slow]

PLACES = [
    ("replica.json", b'"seen_epoch":'),
    ("replica.json", b'"promised":'),
    ("config/groupJournal.json", b'"topicName":"'),
]


def flip(path: Path, after: bytes) -> None:
    """Flip a high bit of the number, or the text, that follows `after`."""
    data = bytearray(path.read_bytes())
    match = re.search(re.escape(after), data)
    assert match is not None, (path, bytes(data))
    data[match.end()] ^= 0x08
    path.write_bytes(data)


async def test_a_group_goes_on_where_a_number_of_one_node_has_changed(tmp_path: Path) -> None:
    spec = write_group(tmp_path, coordinator=PATIENT)
    async with under_load(spec) as group:
        master = await group.master()
        epoch = await group.epoch()
        node = next(other for other in NODES if other != master)
        directory = next(each.directory for each in spec.nodes if each.name == node)
        for name, after in PLACES:
            with trio.fail_after(PATIENCE_SECONDS):
                while not (directory / name).exists():
                    await trio.sleep(0.1)
            await group.cluster.kill(node)
            flip(directory / name, after)
            await group.acked_more()
            await group.cluster.start(node)
            await group.in_sync(len(NODES))
            # The others have kept their master, and it was not asked to prove anything.
            assert await group.master() == master
            assert await group.epoch() == epoch
