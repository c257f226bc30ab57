"""Runs with consumer groups: what commands need. A script says seed, load and plan, no more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.sim.classic.faults import FAULTS as CLASSIC_FAULTS
from tests.sim.consumers.faults import CLIENT_FAULTS
from tests.sim.consumers.settings import (
    LEFT_OUT,
    ClassicConsumersSettings,
    FencedConsumersSettings,
    draw_classic,
    draw_fenced,
)
from tests.sim.consumers.simulation import ClassicConsumersSimulation, FencedConsumersSimulation
from tests.sim.engine.faults import BLACKOUT
from tests.sim.engine.history import Outcome, Send
from tests.sim.engine.playbook import Playbook
from tests.sim.engine.scenario import Scenario
from tests.sim.fenced.faults import FAULTS as FENCED_FAULTS
from tests.sim.fenced.faults import MOMENT

SCENARIOS: Final = Path(__file__).parent.parent / "scenarios" / "consumers"

OF_TWO_MASTERS: Final = ("two masters' locks", "sent back")
"""What may come of it that a new master knows no locks, and an old one not of the new."""

_NEVER: Final = LEFT_OUT | {BLACKOUT, "flip-tail", "store moved away", MOMENT}


def _settings_of(draw: Callable[[int], Any]) -> Callable[[Scenario], Any]:
    def settings_of(scenario: Scenario) -> Any:  # noqa: ANN401
        return msgspec.structs.replace(
            draw(scenario.seed),
            name=scenario.name,
            plan=scenario.plan,
            load_seconds=scenario.load_seconds,
        )

    return settings_of


def phase_words(sends: list[Send]) -> str:
    """Return whether sends were answered."""
    is_any = any(send.outcome is Outcome.OK for send in sends)
    return "messages are acknowledged" if is_any else "nothing is acknowledged"


def _playbook(name: str, **what: Any) -> Playbook[Any, Any]:  # noqa: ANN401
    return Playbook(
        name=name,
        scenarios=SCENARIOS / name,
        options=frozenset(),
        options_of=lambda _: [],
        phase_seconds_min=0.7,
        phase_words=phase_words,
        ending_words=lambda _: [],
        **what,
    )


CLASSIC_CONSUMERS: Final = _playbook(
    "classic-consumers",
    option=ClassicConsumersSettings.option,
    draw=lambda seed, _: draw_classic(seed),
    simulation=ClassicConsumersSimulation,
    faults=(*(fault for fault in CLASSIC_FAULTS if fault not in _NEVER), *CLIENT_FAULTS),
    settings_of=_settings_of(draw_classic),
)
FENCED_CONSUMERS: Final = _playbook(
    "fenced-consumers",
    option=FencedConsumersSettings.option,
    draw=draw_fenced,
    simulation=FencedConsumersSimulation,
    faults=(
        *(fault for fault in FENCED_FAULTS if fault not in _NEVER),
        *CLIENT_FAULTS,
        *OF_TWO_MASTERS,
    ),
    settings_of=_settings_of(draw_fenced),
)
