"""A fenced group with a log of several files, to be damaged and healed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tests.ha.fenced_world import FencedWorld, Replica, open_world
from tests.ha.fingerprinted import take_fingerprints
from tests.ha.world import BODIES, FILE_SIZE_BYTES, read_whole_log


class Group:
    """Three nodes with equal logs of several files; `first` and `second` follow `master`."""

    def __init__(self, world: FencedWorld, master: Replica) -> None:
        self.world = world
        self.master = master
        self.first, self.second = world.slaves()
        self.nodes = [master, self.first, self.second]
        self.log = read_whole_log(master.store)
        self.end = len(self.log)

    async def healed(self, *nodes: Replica) -> None:
        for node in nodes:
            with trio.fail_after(200):
                while not node.serves or node.store.commit_log.damage:
                    await trio.sleep(0.01)
            assert read_whole_log(node.store)[: self.end] == self.log


@asynccontextmanager
async def open_group(*, has_fingerprints: bool = True) -> AsyncIterator[Group]:
    async with open_world() as world:
        master = await world.whole_group()
        for body in BODIES:
            await master.send(body)
        await world.wait_for(
            lambda: all(
                r.store.confirm_offset == master.store.max_physical_offset
                for r in world.replicas.values()
            )
        )
        for replica in world.replicas.values():
            if has_fingerprints:
                await take_fingerprints(replica.store)
        yield Group(world, master)


@asynccontextmanager
async def unconfirmed(group: Group, away: Replica) -> AsyncIterator[tuple[int, int]]:
    """Cut a follower off, and have more messages that the others have and nobody has confirmed.

    It stays in the in-sync set for five seconds. Yields where the second of them begins, and where
    the last one ends, in the same file.
    """
    master = group.master
    group.world.isolate(away.config.address, master.config.address)
    await trio.sleep(0.1)
    start, *_, end = [master.put(body) for body in BODIES[20:26]]
    assert start // FILE_SIZE_BYTES == end // FILE_SIZE_BYTES
    master.submit(end)
    others = [node for node in group.nodes if node is not away]
    await group.world.wait_for(lambda: all(n.store.max_physical_offset == end for n in others))
    assert all(node.store.confirm_offset <= start for node in others)
    yield start, end
