"""Runs with clients that receive by POP: what commands need."""

from pathlib import Path
from typing import Any, Final

import msgspec

from tests.sim.consumers.faults import CLIENT_FAULTS
from tests.sim.consumers.playbook import phase_words
from tests.sim.consumers.settings import LEFT_OUT
from tests.sim.engine.faults import BLACKOUT
from tests.sim.engine.playbook import Playbook
from tests.sim.engine.scenario import Scenario
from tests.sim.fenced.faults import FAULTS as FENCED_FAULTS
from tests.sim.fenced.faults import MOMENT
from tests.sim.pop.settings import CLOCKS, FencedPopSettings, draw_pop
from tests.sim.pop.simulation import FencedPopSimulation

SCENARIOS: Final = Path(__file__).parent.parent / "scenarios" / "pop"

_NEVER: Final = (LEFT_OUT - CLOCKS) | {BLACKOUT, "flip-tail", "store moved away", MOMENT}


def _settings_of(scenario: Scenario) -> Any:  # noqa: ANN401
    return msgspec.structs.replace(
        draw_pop(scenario.seed),
        name=scenario.name,
        plan=scenario.plan,
        load_seconds=scenario.load_seconds,
        # Scripts are of times, and clients linger where there are priorities.
        has_priorities=False,
        never_waits=scenario.options.get("waits", "yes") != "yes",
    )


def _options_of(settings: FencedPopSettings) -> list[str]:
    return ["waits no"] if settings.never_waits else []


FENCED_POP: Final[Playbook[Any, Any]] = Playbook(
    name="fenced-pop",
    option=FencedPopSettings.option,
    draw=draw_pop,
    simulation=FencedPopSimulation,
    faults=(
        *(fault for fault in FENCED_FAULTS if fault not in _NEVER),
        *CLIENT_FAULTS,
        "put again",
        "dead",
    ),
    scenarios=SCENARIOS / "fenced-pop",
    settings_of=_settings_of,
    options=frozenset({"waits"}),
    options_of=_options_of,
    phase_seconds_min=0.7,
    phase_words=phase_words,
    ending_words=lambda _: [],
)
