"""Fenced groups: what commands need, and what a script may say.

nodes 3
min-isr 2
ack-level written           or flushed
lease 2                     seconds
supervised no               yes: the lease of a process that dies is ended at once
available no                an operator has to help: no master at the end
"""

from pathlib import Path
from typing import Final

import msgspec

from ha.fenced.events import Quarantined
from tandem.cluster_file.choices import AckLevel, FlushDiskType
from tests.sim.engine.cluster import ROLES
from tests.sim.engine.history import Contract, Outcome, Send
from tests.sim.engine.playbook import Playbook
from tests.sim.engine.scenario import Scenario
from tests.sim.engine.settings import scripted_store
from tests.sim.engine.simulation import Result
from tests.sim.engine.workload import ProducerProfile
from tests.sim.fenced.faults import FAULTS
from tests.sim.fenced.history import FencedHistory
from tests.sim.fenced.settings import FencedSettings, draw_settings
from tests.sim.fenced.simulation import FencedSimulation


def settings_of(scenario: Scenario) -> FencedSettings:
    """Return the run of a scenario: one producer of each contract, small messages, one try each."""
    options = scenario.options
    node_count = int(options.get("nodes", "3"))
    drawn = draw_settings(scenario.seed, node_count)
    producers = tuple(
        ProducerProfile(
            name=f"{contract}-{index}",
            ip=f"127.0.1.{index + 1}",
            contract=contract,
            retries=0,
            pause_seconds=0.08,
            body_bytes_max=100,
            timeout_ms=1_000,
            attempt_timeout_ms=1_000,
        )
        for index, contract in enumerate(Contract)
    )
    return msgspec.structs.replace(
        drawn,
        name=scenario.name,
        node_count=node_count,
        min_isr=int(options.get("min-isr", "2")),
        ack_level=AckLevel(options.get("ack-level", "written")),
        lease_ttl_ms=int(float(options.get("lease", "2")) * 1000),
        is_supervised=options.get("supervised", "no") == "yes",
        plan=scenario.plan,
        store=scripted_store(drawn.store, FlushDiskType.ASYNC_FLUSH),
        producers=producers,
        ends_without_master=options.get("available", "yes") != "yes",
        load_seconds=scenario.load_seconds,
        delay_seconds_max=0.001,
    )


def options_of(settings: FencedSettings) -> list[str]:
    """Return settings, as lines of a script."""
    return [
        f"nodes {settings.node_count}",
        f"min-isr {settings.min_isr}",
        f"ack-level {settings.ack_level}",
        f"lease {settings.lease_ttl_ms / 1000:g}",
        f"supervised {'yes' if settings.is_supervised else 'no'}",
    ]


def phase_words(sends: list[Send]) -> str:
    """Return whether sends were answered SEND_OK, of each contract."""
    return "; ".join(f"{contract}: {_words(sends, contract)}" for contract in Contract)


def _words(sends: list[Send], contract: Contract) -> str:
    ended = [send.outcome is Outcome.OK for send in sends if send.contract is contract]
    if not ended:
        return "nothing ended"
    return "SEND_OK" if any(ended) else "no SEND_OK"


def ending_words(result: Result[FencedSettings, FencedHistory]) -> list[str]:
    """Return whether the master changed, whose log was cut, and who gave itself up."""
    history = result.history
    roles = {result.roles[role]: role for role in ROLES if role in result.roles}
    cuts = sorted({roles.get(cut.node, cut.node) for cut in history.cuts})
    quarantined = sorted(
        {
            roles.get(seen.node, seen.node)
            for seen in history.events
            if isinstance(seen.event, Quarantined)
        }
    )
    return [
        f"changes of master: {'some' if len(history.openings) > 1 else 'none'}",
        f"cuts: {', '.join(cuts) or 'none'}",
        f"quarantined: {', '.join(quarantined) or 'none'}",
    ]


FENCED: Final = Playbook(
    name="fenced",
    option=FencedSettings.option,
    draw=draw_settings,
    simulation=FencedSimulation,
    faults=FAULTS,
    scenarios=Path(__file__).parent.parent / "scenarios" / "fenced",
    options=frozenset({"nodes", "min-isr", "ack-level", "lease", "supervised", "available"}),
    settings_of=settings_of,
    options_of=options_of,
    phase_seconds_min=1.5,
    phase_words=phase_words,
    ending_words=ending_words,
)
