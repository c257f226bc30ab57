"""What a seed draws for a run with consumer groups, at either kind of replication group."""

import random
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, Final

import msgspec

from tandem.cluster_file.choices import AckLevel
from tandem.cluster_file.settings import BrokerSettings, ReplicationSettings
from tandem.cluster_file.store_settings import StoreSettings
from tests.sim.classic.faults import ClassicFaultMix, ClassicPlanner
from tests.sim.classic.settings import NODE_COUNT, ClassicSettings
from tests.sim.consumers.faults import client_faults
from tests.sim.engine.faults import Instruction
from tests.sim.engine.settings import GROUP, draw_store
from tests.sim.fenced.faults import FencedFaultMix, FencedPlanner
from tests.sim.fenced.settings import FencedSettings

CONSUMERS: Final = ("127.0.4.1", "127.0.4.2", "127.0.4.3")
ORDERLY_CONSUMERS: Final = ("127.0.4.11", "127.0.4.12", "127.0.4.13")
PRODUCER: Final = "127.0.4.21"
TRANSACTION_PRODUCERS: Final = ("127.0.4.31", "127.0.4.32")

LEFT_OUT: Final = frozenset(
    {"clock", "put-back", "keep-copy", "restore-coordinator", "save-coordinator", "recover-group"}
)
"""What would make a delay level last an hour, or take back what a group was promised."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What clients do."""

    consumer_count: int
    orderly_count: int
    transaction_producer_count: int
    queue_nums: int
    pause_seconds: float
    """Between two messages of a producer, in the mean."""
    fail_chance: float
    """How often a message fails at least once."""
    timed_chance: float
    """How often one has a time of its own, or a delay level."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Where clients run."""
        return (
            *CONSUMERS[: self.consumer_count],
            *ORDERLY_CONSUMERS[: self.orderly_count],
            PRODUCER,
            *TRANSACTION_PRODUCERS[: self.transaction_producer_count],
        )


class ClassicConsumersSettings(ClassicSettings, frozen=True, kw_only=True):
    """What a run is like."""

    option: ClassVar[str] = "--consumers "

    workload: Workload


class FencedConsumersSettings(FencedSettings, frozen=True, kw_only=True):
    """What a run is like."""

    option: ClassVar[str] = "--consumers --fenced "

    workload: Workload


def draw_classic(seed: int) -> ClassicConsumersSettings:
    """Draw the settings and the plan of a seed. What was acknowledged survives all of it."""
    chance = random.Random(f"classic consumers {seed}")
    workload = _draw_workload(chance)
    sync_flush = chance.random() < 0.35
    mix = ClassicFaultMix(
        duration_seconds=chance.choice((4.0, 8.0)),
        fault_count_max=6,
        master_power_loss=sync_flush,
    )
    names = [f"{GROUP}-{index}" for index in range(NODE_COUNT)]
    plan = ClassicPlanner(chance, names, workload.clients, mix).plan()
    return ClassicConsumersSettings(
        name=str(seed),
        seed=seed,
        plan=whole_plan(chance, plan, workload, names, mix.duration_seconds),
        store=_timed(draw_store(chance, sync_flush=sync_flush, flush_intervals_ms=(50, 500))),
        replication=ReplicationSettings(
            slave_timeout_ms=600,
            ha_send_heartbeat_interval_ms=500,
            ha_housekeeping_interval_ms=2_000,
            ha_reconnect_interval_ms=chance.choice((100, 500)),
        ),
        producers=(),
        load_seconds=mix.duration_seconds + 1.0,
        delay_seconds_max=chance.choice((0.001, 0.005)),
        workload=workload,
    )


def draw_fenced(seed: int, node_count: int | None = None) -> FencedConsumersSettings:
    """Draw the settings and the plan of a seed."""
    chance = random.Random(f"fenced consumers {seed}")
    workload = _draw_workload(chance)
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
    sync_flush = ack_level is AckLevel.FLUSHED
    return FencedConsumersSettings(
        name=str(seed),
        seed=seed,
        node_count=nodes,
        min_isr=2 if nodes == 3 else 3,
        ack_level=ack_level,
        lease_ttl_ms=lease_ttl_ms,
        is_supervised=chance.random() < 0.5,
        plan=whole_plan(chance, plan, workload, names, mix.duration_seconds),
        store=_timed(draw_store(chance, sync_flush=sync_flush, flush_intervals_ms=(100, 500))),
        replication=ReplicationSettings(
            slave_timeout_ms=600,
            ha_transfer_batch_size_bytes=chance.choice((200, 1_000, 262_144)),
        ),
        producers=(),
        load_seconds=mix.duration_seconds + 1.5,
        delay_seconds_max=chance.choice((0.001, 0.005)),
        workload=workload,
    )


def _draw_workload(chance: random.Random) -> Workload:
    return Workload(
        consumer_count=chance.choice((2, 3)),
        orderly_count=chance.choice((2, 3)),
        transaction_producer_count=chance.choice((1, 2)),
        queue_nums=chance.choice((2, 3, 4)),
        pause_seconds=chance.choice((0.1, 0.2)),
        fail_chance=chance.choice((0.1, 0.3)),
        timed_chance=chance.choice((0.0, 0.1)),
    )


def whole_plan(
    chance: random.Random,
    plan: Sequence[Instruction],
    workload: Workload,
    names: Sequence[str],
    duration_seconds: float,
    left_out: AbstractSet[str] = LEFT_OUT,
) -> tuple[Instruction, ...]:
    """Return a plan for nodes, without some verbs, together with what happens to clients."""
    kept = [instruction for instruction in plan if instruction.verb not in left_out]
    kept += client_faults(chance, workload.clients, names, duration_seconds)
    kept = [each for each in kept if each.at_seconds <= duration_seconds + 3.0]
    return tuple(sorted(kept, key=lambda instruction: instruction.at_seconds))


def _timed(store: StoreSettings) -> StoreSettings:
    """Short delay levels, and messages with times of their own."""
    what: dict[str, Any] = {
        "message_delay_level": "1s 1s 1s 2s 2s 2s",
        "timer_wheel_enable": True,
        "message_index_enable": False,
        "mapped_file_size_commit_log_bytes": 32_768,
    }
    return msgspec.structs.replace(store, **what)


def broker_settings(usual: BrokerSettings, workload: Workload) -> BrokerSettings:
    """Have producers asked soon, and given up soon."""
    return msgspec.structs.replace(
        usual,
        default_topic_queue_nums=workload.queue_nums,
        transaction_check_interval_ms=2_000,
        transaction_timeout_ms=600,
        transaction_check_max=4,
    )
