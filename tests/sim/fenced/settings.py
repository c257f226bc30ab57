"""What a seed draws for a run of a fenced group."""

import random
from typing import Any, ClassVar, Final

import msgspec

from tandem.cluster_file.choices import AckLevel
from tandem.cluster_file.settings import ReplicationSettings
from tandem.cluster_file.store_settings import StoreSettings
from tests.sim.engine.faults import BLACKOUT, Instruction
from tests.sim.engine.history import Contract
from tests.sim.engine.settings import GROUP, Settings, draw_store
from tests.sim.engine.workload import ProducerProfile
from tests.sim.fenced.faults import OPEN_VERBS, ROT_VERBS, FencedFaultMix, FencedPlanner
from tests.sim.fenced.open_damage import OpenDamage

OLDER: Final = frozenset({"put-back", "restore-coordinator", "recover-group"})
"""What plans with a blackout do not do."""

LONG_CHANCE: Final = 0.1
"""Share of the seeds whose faults last as long as they want, and that are watched long after."""

ROT_CHANCE: Final = 0.3
"""Share of the seeds in which disks rot."""

OPEN_CHANCE: Final = 0.6
"""Share of these in which damage stays open for a while, half of the time with no other faults."""

NOT_BESIDE_ROT: Final = OLDER | {"keep-copy", "save-coordinator", "rejoin", "flip-tail", BLACKOUT}
"""What takes away the whole copy of what has rotted elsewhere."""

BLACKOUT_CHANCE: Final = 0.12
"""Share of the seeds in which all machines lose power, of those where that may lose something."""


class FencedSettings(Settings, frozen=True, kw_only=True):
    """What a run is like."""

    option: ClassVar[str] = "--fenced "

    min_isr: int
    ack_level: AckLevel
    lease_ttl_ms: int
    is_supervised: bool
    """Whether somebody ends the lease of a process that died."""
    settles_long: bool = False
    """Whether it is watched for as long as sends may take to succeed, though all is well."""
    older: tuple[str, ...] = ()
    """Nodes that begin as those of the version before; see `versions`."""
    ends_without_master: bool = False
    """What the plan does can be mended by an operator only."""

    @property
    def rots(self) -> bool:
        """Whether disks rot."""
        return any(instruction.verb in ROT_VERBS for instruction in self.plan)

    @property
    def has_open_damage(self) -> bool:
        """Whether damage stays open for a while."""
        return any(instruction.verb in OPEN_VERBS for instruction in self.plan)

    def terms(self) -> str:
        """One line for a person: what the group is like."""
        return (
            f"{self.node_count} nodes, min_isr {self.min_isr}, {self.ack_level},"
            f" lease {self.lease_ttl_ms} ms, supervised: {self.is_supervised}"
        )


def draw_settings(seed: int, node_count: int | None = None) -> FencedSettings:
    """Draw the settings and the plan of a seed."""
    chance = random.Random(f"fenced settings {seed}")
    drawn_count = chance.choice((3, 3, 3, 3, 5))
    nodes = node_count or drawn_count
    min_isr = chance.choice((1, 2, 2, 2, 2, 3) if nodes == 3 else (2, 3, 3))
    ack_level = chance.choice((AckLevel.WRITTEN, AckLevel.WRITTEN, AckLevel.FLUSHED))
    names = [f"{GROUP}-{index}" for index in range(nodes)]
    producers = _draw_producers(chance)
    lease_ttl_ms = chance.choice((2_000, 2_000, 2_000, 5_000))
    powered = _draw_powered(chance, names, ack_level, min_isr)
    mix = FencedFaultMix(
        duration_seconds=chance.choice((1.5, 3.0, 5.0)),
        powered=powered,
        lease_seconds=lease_ttl_ms / 1000,
        # One node, and where an acknowledgement means "written" that which may lose power.
        spoiled=powered[-1:] if min_isr > 1 else (),
    )
    clients = [producer.ip for producer in producers]
    plan = FencedPlanner(random.Random(f"fenced plan {seed}"), names, clients, mix).plan()
    is_long = chance.random() < LONG_CHANCE
    load_seconds = mix.duration_seconds + 1.5
    if ack_level is AckLevel.WRITTEN:
        plan = _with_blackout(random.Random(f"fenced blackout {seed}"), plan, names, load_seconds)
    plan = _with_rot(random.Random(f"fenced rot {seed}"), plan, names, load_seconds)
    settings = FencedSettings(
        name=str(seed),
        seed=seed,
        node_count=nodes,
        min_isr=min_isr,
        ack_level=ack_level,
        lease_ttl_ms=lease_ttl_ms,
        is_supervised=chance.random() < 0.5,
        plan=tuple(plan if is_long else _without_late_ones(plan, mix)),
        store=_draw_store(chance, ack_level),
        replication=ReplicationSettings(
            slave_timeout_ms=600,
            ha_transfer_batch_size_bytes=chance.choice((200, 1_000, 262_144)),
            check_crc_on_append=chance.random() < 0.7,
        ),
        producers=producers,
        load_seconds=load_seconds,
        delay_seconds_max=chance.choice((0.001, 0.005, 0.03)),
        settles_long=is_long,
    )
    return _with_open_damage(random.Random(f"fenced open damage {seed}"), settings)


def _with_open_damage(chance: random.Random, settings: FencedSettings) -> FencedSettings:
    """Let damage stay open for a while, in most runs with rot; files are small then, and full."""
    if not settings.rots or chance.random() > OPEN_CHANCE:
        return settings
    others = settings.plan if chance.random() < 0.5 else ()
    plan = [*others, *OpenDamage(chance, settings.node_names).plan()]
    plan.sort(key=lambda instruction: instruction.at_seconds)
    file_bytes = chance.choice((4096, 4096, 8192))
    return msgspec.structs.replace(
        settings,
        plan=tuple(plan),
        settles_long=False,
        store=msgspec.structs.replace(settings.store, mapped_file_size_commit_log_bytes=file_bytes),
        load_seconds=max(settings.load_seconds, plan[-1].at_seconds + 0.5),
    )


def _with_blackout(
    chance: random.Random, plan: list[Instruction], names: list[str], load_seconds: float
) -> list[Instruction]:
    """Let all machines lose power now and then, and half of the time have a node lag by then."""
    if chance.random() > BLACKOUT_CHANCE:
        return plan
    at = round(chance.uniform(1.0, load_seconds), 3)
    ending = [Instruction(at, BLACKOUT, ())]
    if chance.random() < 0.5:
        away_at = round(chance.uniform(0.1, max(0.2, at - 2.5)), 3)
        ending.append(Instruction(away_at, "kill", (chance.choice(names),)))
    # An operator who accepts losses after it must not meet records or disks of before as well.
    kept = [i for i in plan if i.at_seconds < at and i.verb not in OLDER]
    return sorted([*kept, *ending], key=lambda instruction: instruction.at_seconds)


def _with_rot(
    chance: random.Random, plan: list[Instruction], names: list[str], load_seconds: float
) -> list[Instruction]:
    """Let disks rot now and then, of different nodes at different places; some are scrubbed."""
    if chance.random() > ROT_CHANCE:
        return plan
    rotting = []
    for _ in range(chance.randint(1, 4)):
        at, name = round(chance.uniform(1.0, load_seconds), 3), chance.choice(names)
        rotting.append(Instruction(at, "rot", (name, "any")))
        if chance.random() < 0.5:
            later = round(at + chance.uniform(0.0, 1.0), 3)
            rotting.append(Instruction(later, "scrub", (name,)))
    kept = [i for i in plan if i.verb not in NOT_BESIDE_ROT]
    return sorted([*kept, *rotting], key=lambda instruction: instruction.at_seconds)


def _without_late_ones(plan: list[Instruction], mix: FencedFaultMix) -> list[Instruction]:
    """Leave out what comes when healing has ended all that is under way."""
    end = mix.duration_seconds + max(1.5, 1.25 * mix.lease_seconds)
    return [instruction for instruction in plan if instruction.at_seconds <= end]


def _draw_powered(
    chance: random.Random, names: list[str], ack_level: AckLevel, min_isr: int
) -> tuple[str, ...]:
    """Return the nodes that may lose power.

    Where an acknowledgement means "written", one machine may lose what it had not synced, and only
    if a second one always has it.
    """
    if ack_level is AckLevel.FLUSHED:
        return tuple(names)
    return (chance.choice(names),) if min_isr > 1 else ()


def _draw_store(chance: random.Random, ack_level: AckLevel) -> StoreSettings:
    sync_flush = ack_level is AckLevel.FLUSHED or chance.random() < 0.2
    store = draw_store(chance, sync_flush=sync_flush, flush_intervals_ms=(100, 500))
    return msgspec.structs.replace(store, **_store_features(chance))


def _store_features(chance: random.Random) -> dict[str, Any]:
    return {
        "message_index_enable": chance.random() < 0.2,
        "max_hash_slot_num": 20,
        "max_index_num": 30,
        "enabled_append_prop_crc": chance.random() < 0.3,
    }


def _draw_producers(chance: random.Random) -> tuple[ProducerProfile, ...]:
    contracts = [Contract.REPLICATED, chance.choice(list(Contract)), Contract.FLUSHED]
    producers = []
    for index, contract in enumerate(contracts[: chance.randint(2, 3)]):
        retries = chance.choice((0, None, None))
        producers.append(
            ProducerProfile(
                name=f"{contract}-{index}",
                ip=f"127.0.1.{index + 1}",
                contract=contract,
                retries=retries,
                resends=retries is None and chance.random() < 0.3,
                pause_seconds=chance.choice((0.1, 0.25)),
                body_bytes_max=chance.choice((0, 200, 1000)),
                batch_chance=chance.choice((0.0, 0.2)),
                timeout_ms=1_500 if retries == 0 else chance.choice((2_000, 6_000)),
                attempt_timeout_ms=900,
            )
        )
    return tuple(producers)
