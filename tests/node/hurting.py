"""What is done to the nodes of a world while clients go on."""

import random

import trio

from tests.node.world import COORDINATOR, NAMES, World


async def hurt(world: World, chance: random.Random) -> None:
    """Do one thing to one node, and take it back."""
    name = chance.choice(NAMES)
    fault = chance.choice(["kill", "power", "isolate", "coordinator", "peers"])
    if fault in {"kill", "power"}:
        await (world.kill(name) if fault == "kill" else world.power_off(name))
        await trio.sleep(chance.uniform(0, 10))
        await world.start(name)
        return
    peers = [world.address(other) for other in NAMES if other != name]
    ends = {"coordinator": [COORDINATOR], "peers": peers}.get(fault, [*peers, COORDINATOR])
    for end in ends:
        world.network.stall(world.address(name), end)
        world.network.stall(end, world.address(name))
    await trio.sleep(chance.uniform(0, 12))
    world.network.heal_all()
