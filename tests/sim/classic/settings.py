"""What a seed draws for a run of a classic group."""

import random
from typing import Any, Final

import msgspec

from tandem.cluster_file.settings import ReplicationSettings
from tests.sim.classic.faults import ClassicFaultMix, ClassicPlanner
from tests.sim.engine.faults import Instruction
from tests.sim.engine.history import Contract
from tests.sim.engine.settings import GROUP, Settings, draw_store
from tests.sim.engine.workload import ProducerProfile

NODE_COUNT = 3

ROT_CHANCE: Final = 0.35
"""Share of the seeds in which a disk rots, of those in which no machine loses power."""

ROT_SECONDS: Final = (1.3, 3.0)
"""When: there are files that are full by then, and it is known where the log begins."""

POWER_OFF: Final = "power-off"
NOT_BESIDE_ROT: Final = frozenset({POWER_OFF, "disk-fails", "disk-slow"})
"""What takes away bytes in another way, or leaves it open whether they were ever on the disk: what
has changed there a start takes for a torn put, and cuts it off."""


class ClassicSettings(Settings, frozen=True, kw_only=True):
    """What a run is like."""

    @property
    def rots(self) -> bool:
        """Whether a disk rots."""
        return any(instruction.verb == "rot" for instruction in self.plan)

    def terms(self) -> str:
        """One line for a person: what the group is like."""
        return f"{super().terms()}, in_sync_replicas {self.replication.in_sync_replicas}"


def classic_producer(**what: Any) -> ProducerProfile:  # noqa: ANN401
    """Return a producer as classic groups have them: with one try, unless it says otherwise."""
    common = {
        "retries": 0,
        "batch_max": 6,
        "attempt_timeout_ms": 4_000,
    }
    return ProducerProfile(**{**common, **what})


def draw_settings(seed: int) -> ClassicSettings:
    """Draw the settings and the plan of a seed."""
    chance = random.Random(f"settings {seed}")
    sync_flush = chance.random() < 0.35
    producers = _draw_producers(chance)
    # Where SEND_OK does not mean "on the disk", losing the page cache loses messages. Now and then
    # the master loses its own, to see that this is noticed; then the slaves keep theirs.
    unsafe = not sync_flush and chance.random() < 0.2
    mix = ClassicFaultMix(
        duration_seconds=chance.choice((1.0, 2.0, 4.0)),
        fault_count_max=8,
        master_power_loss=sync_flush or unsafe,
        slave_power_loss=not unsafe,
    )
    names = [f"{GROUP}-{index}" for index in range(NODE_COUNT)]
    clients = [producer.ip for producer in producers]
    plan = ClassicPlanner(random.Random(f"plan {seed}"), names, clients, mix).plan()
    store = draw_store(chance, sync_flush=sync_flush, flush_intervals_ms=(50, 500))
    replication = _draw_replication(chance)
    timeout_ms = chance.choice((500, 1_500))
    settings = ClassicSettings(
        name=str(seed),
        seed=seed,
        node_count=NODE_COUNT,
        plan=tuple(plan),
        store=msgspec.structs.replace(store, **_store_features(seed)),
        replication=replication,
        producers=tuple(
            msgspec.structs.replace(producer, timeout_ms=timeout_ms) for producer in producers
        ),
        load_seconds=mix.duration_seconds + 0.5,
        delay_seconds_max=chance.choice((0.001, 0.005, 0.03)),
    )
    return _with_rot(random.Random(f"rot {seed}"), settings)


def _with_rot(chance: random.Random, settings: ClassicSettings) -> ClassicSettings:
    """Let the disk of one node rot now and then; files are small then, and scrubbed often."""
    loses_power = any(i.verb == POWER_OFF for i in settings.plan)
    if chance.random() > ROT_CHANCE or loses_power:
        return settings
    node = chance.choice(settings.node_names)
    plan = [i for i in settings.plan if i.verb not in NOT_BESIDE_ROT]
    last = 0.0
    for _ in range(chance.randint(1, 3)):
        at = round(chance.uniform(*ROT_SECONDS), 3)
        last = max(last, at)
        if chance.random() < 0.4:
            plan.append(Instruction(at, "rot", (node, "any")))
            continue
        kind = chance.choice(("any", "any", "lose-first"))
        plan.append(Instruction(at, chance.choice(("kill", "stop")), (node,)))
        plan.append(Instruction(round(at + 0.2, 3), "rot", (node, kind)))
        plan.append(Instruction(round(at + 0.25, 3), "start", (node,)))
    plan.sort(key=lambda instruction: instruction.at_seconds)
    # Less than what a cluster file may say: a pass takes half of it.
    what: dict[str, Any] = {
        "mapped_file_size_commit_log_bytes": chance.choice((4096, 8192)),
        "scrub_interval_hours": 0.001,
    }
    return msgspec.structs.replace(
        settings,
        plan=tuple(plan),
        store=msgspec.structs.replace(settings.store, **what),
        load_seconds=max(settings.load_seconds, last + 1.0),
    )


def _draw_producers(chance: random.Random) -> list[ProducerProfile]:
    return [
        classic_producer(
            name=f"{'sync' if index % 2 == 0 else 'async'}-{index}",
            ip=f"127.0.1.{index + 1}",
            contract=Contract.REPLICATED if index % 2 == 0 else Contract.ASYNC,
            retries=chance.choice((0, 0, 0, 2)),
            pause_seconds=chance.choice((0.04, 0.08, 0.15)),
            body_bytes_max=chance.choice((0, 200, 1500)),
            batch_chance=chance.choice((0.0, 0.2)),
            many_chance=chance.choice((0.0, 0.3)),
            timeout_ms=1_000,
        )
        for index in range(chance.randint(2, 4))
    ]


def _draw_replication(chance: random.Random) -> ReplicationSettings:
    return ReplicationSettings(
        slave_timeout_ms=600,
        in_sync_replicas=chance.choice((None, None, None, 2, 3)),
        ha_max_gap_not_in_sync_bytes=chance.choice((20_000, 268_435_456)),
        ha_transfer_batch_size_bytes=chance.choice((200, 1_000, 262_144)),
        ha_send_heartbeat_interval_ms=500,
        ha_housekeeping_interval_ms=2_000,
        ha_reconnect_interval_ms=chance.choice((100, 500)),
        check_crc_on_append=chance.random() < 0.7,
    )


def _store_features(seed: int) -> dict[str, Any]:
    """Return settings of the store that change its files, but nothing that anyone is promised."""
    chance = random.Random(f"store {seed}")
    return {
        "message_index_enable": chance.random() < 0.5,
        "max_hash_slot_num": 20,
        "max_index_num": chance.choice((30, 300)),
        "mapped_file_size_consume_queue_ext_bytes": 4096,
        "enable_consume_queue_ext": chance.random() < 0.3,
        "enabled_append_prop_crc": chance.random() < 0.3,
    }
