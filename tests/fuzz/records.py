"""Records of the fenced group in its coordinator, overwritten by values that mean nothing.

Whoever may write there may also end a master's time, so messages wait here and that is no finding.
What must hold: no node ends, none is stopped for good, and once the records are as they were before
the group goes on.

Not written is a whole state that is newer than the one that is there. Nodes remember the newest one
that they saw, so putting the older one back is setting the coordinator back, and then an operator
is needed: the simulation and the drill play that.
"""

from random import Random
from typing import ClassVar

import msgspec
import trio

from tandem.coordinator.client import connect
from tandem.coordinator.interface import Compare, CoordinatorError, Delete, Put, Snapshot
from tandem.wire.group_state import GroupKeys, MalformedGroupRecordError, decode_state
from tests.fuzz import hostile
from tests.fuzz.world import FENCED, IMPOSTOR_FENCED, World

HELD_SECONDS = 0.2


class RecordsAttacker:
    """Writes into the coordinator, and afterwards what was there before."""

    VALUES: ClassVar = 8

    def __init__(self, world: World) -> None:
        self._world = world
        self._keys = GroupKeys(world.spec.name, FENCED)

    def batch(self, chance: Random, number: int) -> int:
        """Have some records in the place of the right ones for a moment each."""
        trio.run(self._write, chance)
        self._world.canary.wait_well(60.0)
        return self.VALUES

    async def _write(self, chance: Random) -> None:
        client = connect(self._world.spec.coordinator, secret=self._world.spec.read_secret())
        keys = self._keys
        try:
            for _ in range(self.VALUES):
                before = await client.read(keys.prefix)
                key = chance.choice(
                    (keys.state, keys.leader, *map(keys.node, ("f-1", "f-2", IMPOSTOR_FENCED, "?")))
                )
                kept = before.values.get(key)
                # Only in the place of what was read: the group may have written a newer one.
                as_read = Compare(key, kept.mod_revision if kept is not None else 0)
                value = self._value(chance, before, key)
                if key == keys.state and kept is not None and _is_newer(value, kept.value):
                    continue
                put = await client.transact([as_read], [Put(key, value)])
                if not put.succeeded:
                    continue
                await trio.sleep(HELD_SECONDS)
                if key == keys.state and kept is not None:
                    as_put = Compare(key, put.revision)
                    await client.transact([as_put], [Put(key, kept.value)])
                else:
                    # Nobody can write a record under the lease of another: it comes back by itself.
                    await client.transact([], [Delete(key)])
                await trio.sleep(HELD_SECONDS)
        except CoordinatorError:
            pass
        finally:
            await client.aclose()

    def _value(self, chance: Random, before: Snapshot, key: str) -> bytes:
        if chance.random() < 0.3:
            return chance.choice(hostile.RAW_JSON)
        kept = before.values.get(key)
        template = msgspec.json.decode(kept.value) if kept is not None else {"node": "f-1"}
        return hostile.json_of(chance, template)


def _is_newer(value: bytes, kept: bytes) -> bool:
    """Whether a node that reads the first would take the second for a backup afterwards."""
    try:
        return decode_state(value).age > decode_state(kept).age
    except MalformedGroupRecordError:
        return False
