"""Groups whose members are of two versions: their engines know one feature level less, or all.

The faults of a seed of fenced groups, and beside them an operator who upgrades nodes, takes some of
them back, and raises the level whenever that may be. A node of the older version that has to stay
out says so, and somebody who reads its log upgrades it. Whatever comes of it: every promise of
fenced groups holds, and no master knows less than the level of its group.
"""

import random
from typing import Any, ClassVar, Final

import msgspec

from tandem.wire.feature_level import LEVEL_MAX
from tests.sim.engine.faults import BLACKOUT, Instruction
from tests.sim.engine.playbook import Playbook
from tests.sim.fenced.faults import FAULTS
from tests.sim.fenced.playbook import FENCED, options_of, settings_of
from tests.sim.fenced.settings import FencedSettings, draw_settings

OLDER: Final = LEVEL_MAX - 1

RAISES_MAX: Final = 5


class VersionSettings(FencedSettings, frozen=True, kw_only=True):
    """What such a run is like."""

    option: ClassVar[str] = "--versions "

    def terms(self) -> str:
        """See `Settings`."""
        return f"{super().terms()}, of the version before: {', '.join(self.older) or 'none'}"


def draw_versions(seed: int, node_count: int | None = None) -> VersionSettings:
    """Draw the settings of a seed of fenced groups, and which node is of which version when."""
    drawn = draw_settings(seed, node_count)
    chance = random.Random(f"versions {seed}")
    names = list(drawn.node_names)
    older = chance.sample(names, chance.choice((1, len(names) - 1, len(names), len(names))))
    end = drawn.load_seconds
    plan = [i for i in drawn.plan if i.verb != BLACKOUT]
    for name in chance.sample(names, len(names)):
        at = round(chance.uniform(0.2, end * 0.7), 3)
        if name in older and chance.random() < 0.85:
            plan.append(Instruction(at, "upgrade", (name,)))
        if chance.random() < 0.3:
            back = round(chance.uniform(at, end), 3)
            plan.append(Instruction(back, "downgrade", (name,)))
            if chance.random() < 0.7:
                again = round(chance.uniform(back, end), 3)
                plan.append(Instruction(again, "upgrade", (name,)))
    plan += [
        Instruction(round(chance.uniform(0.2, end), 3), "raise-features", ())
        for _ in range(chance.randint(1, RAISES_MAX))
    ]
    plan.sort(key=lambda instruction: instruction.at_seconds)
    facts = msgspec.structs.asdict(drawn) | {"older": tuple(sorted(older)), "plan": tuple(plan)}
    return VersionSettings(**facts)


def _settings_of(scenario: Any) -> VersionSettings:  # noqa: ANN401
    facts = msgspec.structs.asdict(settings_of(scenario))
    older = scenario.options.get("older", "")
    names = tuple(name for name in older.split(",") if name)
    return VersionSettings(**(facts | {"older": names}))


def _options_of(settings: VersionSettings) -> list[str]:
    return [
        *options_of(settings),
        *([f"older {','.join(settings.older)}"] if settings.older else []),
    ]


FENCED_VERSIONS: Final[Playbook[Any, Any]] = Playbook(
    name="fenced-versions",
    option=VersionSettings.option,
    draw=draw_versions,
    simulation=FENCED.simulation,
    faults=(
        *(fault for fault in FAULTS if fault != BLACKOUT),
        "upgrade",
        "downgrade",
        "raise-features",
        "kept out",
    ),
    scenarios=FENCED.scenarios.parent / "versions",
    options=FENCED.options | {"older"},
    settings_of=_settings_of,
    options_of=_options_of,
    phase_seconds_min=FENCED.phase_seconds_min,
    phase_words=FENCED.phase_words,
    ending_words=FENCED.ending_words,
)
