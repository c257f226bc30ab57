"""What a seed draws for a run with clients that receive by POP, at a fenced group."""

import random
from typing import ClassVar, Final

from tandem.cluster_file.choices import AckLevel
from tandem.cluster_file.settings import ReplicationSettings
from tests.sim.consumers.settings import LEFT_OUT, FencedConsumersSettings, Workload, whole_plan
from tests.sim.engine.settings import GROUP, draw_store
from tests.sim.fenced.faults import FencedFaultMix, FencedPlanner

CLOCKS: Final = frozenset({"clock"})
"""Wall clocks may jump: nothing of POP depends on them."""


class FencedPopSettings(FencedConsumersSettings, frozen=True, kw_only=True):
    """What a run is like."""

    option: ClassVar[str] = "--pop "

    has_priorities: bool = False
    """Whether the topic whose messages come in no order is of the type PRIORITY."""
    never_waits: bool = False
    """Whether no consumer waits for a message: nothing but the broker itself looks at the times."""


def draw_pop(seed: int, node_count: int | None = None) -> FencedPopSettings:
    """Draw the settings and the plan of a seed."""
    chance = random.Random(f"fenced pop {seed}")
    workload = Workload(
        consumer_count=chance.choice((2, 3)),
        orderly_count=chance.choice((1, 2)),
        transaction_producer_count=0,
        queue_nums=chance.choice((1, 2, 3)),
        pause_seconds=chance.choice((0.05, 0.15)),
        fail_chance=chance.choice((0.1, 0.3)),
        timed_chance=0.0,
    )
    nodes = node_count or chance.choice((3, 3, 3, 3, 5))
    names = [f"{GROUP}-{index}" for index in range(nodes)]
    ack_level = chance.choice((AckLevel.WRITTEN, AckLevel.FLUSHED))
    lease_ttl_ms = chance.choice((2_000, 2_000, 5_000))
    mix = FencedFaultMix(
        duration_seconds=chance.choice((4.0, 8.0)),
        fault_count_max=6,
        powered=tuple(names) if ack_level is AckLevel.FLUSHED else (chance.choice(names),),
        lease_seconds=lease_ttl_ms / 1000,
    )
    plan = FencedPlanner(chance, names, workload.clients, mix).plan()
    left_out = LEFT_OUT - CLOCKS
    sync_flush = ack_level is AckLevel.FLUSHED
    return FencedPopSettings(
        name=str(seed),
        seed=seed,
        node_count=nodes,
        min_isr=2 if nodes == 3 else 3,
        ack_level=ack_level,
        lease_ttl_ms=lease_ttl_ms,
        is_supervised=chance.random() < 0.5,
        plan=whole_plan(chance, plan, workload, names, mix.duration_seconds, left_out),
        store=draw_store(chance, sync_flush=sync_flush, flush_intervals_ms=(100, 500)),
        replication=ReplicationSettings(
            slave_timeout_ms=600,
            ha_transfer_batch_size_bytes=chance.choice((200, 1_000, 262_144)),
        ),
        producers=(),
        load_seconds=mix.duration_seconds + 1.5,
        delay_seconds_max=chance.choice((0.001, 0.005)),
        workload=workload,
        has_priorities=random.Random(f"priorities {seed}").random() < 0.4,
        never_waits=random.Random(f"waits {seed}").random() < 0.3,
    )
