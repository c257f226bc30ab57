"""A topic that was deleted in a fenced group, and created again at the next master."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tandem.wire.request_code import RequestCode
from tests.node.world import NAMES, bodies, fenced_cluster, open_world


@pytest.mark.slow
async def test_what_was_deleted_stays_hidden_at_the_next_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            assert (await client.send(b"old")).code == 0
            answer = await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            assert answer.code == 0, answer.remark
        await trio.sleep(2)
        await world.kill(master)
        later = await world.master(*(name for name in NAMES if name != master))
        async with world.client(world.address(later)) as client:
            answer = await client.send(b"new")
            assert answer.code == 0, answer.remark
            found = await client.pull(offset=0)
            offset = int(found.ext_fields()["nextBeginOffset"]) if found.code else 0
            assert bodies(await client.pull(offset=offset)) == [b"new"]
