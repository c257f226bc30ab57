"""What happens to clients of consumer groups, beside what happens to nodes.

    client-kill IP      its process dies; the kernel closes its connections
    client-vanish IP    its machine is dark; brokers learn of it when its heartbeats are missing,
                        or when they get no answer but a reset. It comes back only if a plan says so
    client-start IP     another process begins there

`stall`, `heal` and `cut` of `engine.faults` take addresses of clients as well.
"""

import random
from collections.abc import Sequence
from typing import Final

from tests.sim.engine.faults import CLIENT_VERBS, Instruction

CLIENT_FAULTS: Final = tuple(verb for verb in CLIENT_VERBS if verb != "client-start")
"""Names under which a run notes the faults that did something."""


def client_faults(
    chance: random.Random, clients: Sequence[str], nodes: Sequence[str], duration_seconds: float
) -> list[Instruction]:
    """Draw what happens to clients."""
    plan: list[Instruction] = []

    def add(at: float, verb: str, *arguments: str) -> None:
        plan.append(Instruction(round(at, 3), verb, arguments))

    gone_for_good = chance.random() < 0.2
    if gone_for_good:
        add(chance.uniform(0.5, duration_seconds), "client-vanish", clients[0])
    others = clients[1:] if gone_for_good else clients
    for _ in range(chance.randint(0, 4)):
        at = chance.uniform(0.5, duration_seconds)
        client = chance.choice(others)
        back = at + chance.choice((0.1, 1.0, 4.0)) * chance.uniform(0.5, 1.5)
        match chance.choice(("kill", "kill", "vanish", "stall", "stall", "cut")):
            case "stall":
                for node in chance.sample(list(nodes), chance.choice((1, len(nodes)))):
                    for ends in ((client, node), (node, client)):
                        add(at, "stall", *ends)
                        add(back, "heal", *ends)
            case "cut":
                add(at, "cut", client, chance.choice(nodes))
            case how:
                add(at, f"client-{how}", client)
                add(back, "client-start", client)
    return plan
