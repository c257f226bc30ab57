"""Classic groups: a master and two slaves. What commands need, and what a script may say.

flush ASYNC_FLUSH           or SYNC_FLUSH
in-sync-replicas 2          left out: the contract of RocketMQ 4, one slave
"""

from pathlib import Path
from typing import Final

import msgspec

from tandem.cluster_file.choices import FlushDiskType
from tests.sim.classic.faults import FAULTS
from tests.sim.classic.history import ClassicHistory
from tests.sim.classic.settings import ClassicSettings, classic_producer, draw_settings
from tests.sim.classic.simulation import ClassicSimulation
from tests.sim.engine.history import Contract, Send
from tests.sim.engine.playbook import Playbook
from tests.sim.engine.scenario import Scenario
from tests.sim.engine.settings import scripted_store
from tests.sim.engine.simulation import Result

MODES: Final = {"sync": Contract.REPLICATED, "async": Contract.ASYNC}


def settings_of(scenario: Scenario) -> ClassicSettings:
    """Return the run of a scenario: two sync and two async producers of small messages."""
    drawn = draw_settings(scenario.seed)
    in_sync = scenario.options.get("in-sync-replicas")
    producers = tuple(
        classic_producer(
            name=f"{mode}-{index}",
            ip=f"127.0.1.{index + 1}",
            contract=MODES[mode],
            pause_seconds=0.04,
            body_bytes_max=200,
            timeout_ms=1_000,
        )
        for index, mode in enumerate(("sync", "sync", "async", "async"))
    )
    return msgspec.structs.replace(
        drawn,
        name=scenario.name,
        plan=scenario.plan,
        store=scripted_store(drawn.store, FlushDiskType(scenario.options["flush"])),
        replication=msgspec.structs.replace(
            drawn.replication,
            in_sync_replicas=None if in_sync is None else int(in_sync),
            ha_max_gap_not_in_sync_bytes=268_435_456,
            ha_reconnect_interval_ms=100,
        ),
        producers=producers,
        load_seconds=scenario.load_seconds,
        delay_seconds_max=0.001,
    )


def options_of(settings: ClassicSettings) -> list[str]:
    """Return settings, as lines of a script."""
    in_sync = settings.replication.in_sync_replicas
    return [
        f"flush {settings.store.flush_disk_type.name}",
        *([] if in_sync is None else [f"in-sync-replicas {in_sync}"]),
    ]


def phase_words(sends: list[Send]) -> str:
    """Return with which words sends ended, of each mode."""
    parts = []
    for mode, contract in MODES.items():
        words = sorted({send.text.split()[0] for send in sends if send.contract is contract})
        parts.append(f"{mode}: {', '.join(words) or 'nothing ended'}")
    return "; ".join(parts)


def ending_words(result: Result[ClassicSettings, ClassicHistory]) -> list[str]:
    """Return whom alarms were about, and whose store was moved away."""
    alarmed = sorted({refusal.name for refusal in result.history.refusals})
    wiped = sorted(name for name, _ in result.history.given_up)
    return [f"alarms: {', '.join(alarmed) or 'none'}", f"wiped: {', '.join(wiped) or 'none'}"]


CLASSIC: Final = Playbook(
    name="classic",
    option=ClassicSettings.option,
    draw=lambda seed, _: draw_settings(seed),
    simulation=ClassicSimulation,
    faults=FAULTS,
    scenarios=Path(__file__).parent.parent / "scenarios" / "classic",
    options=frozenset({"flush", "in-sync-replicas"}),
    settings_of=settings_of,
    options_of=options_of,
    phase_seconds_min=0.7,
    phase_words=phase_words,
    ending_words=ending_words,
)
