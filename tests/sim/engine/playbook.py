"""How runs of one kind of group are drawn, played, scripted and told: all that commands need."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from tests.sim.engine.history import Send
from tests.sim.engine.scenario import Scenario, phases, read_scenario, write_outcome
from tests.sim.engine.simulation import H, Result, S, Simulation, run_settings
from tests.sim.engine.trace import PrintLine, Trace


@dataclass(frozen=True, kw_only=True)
class Playbook(Generic[S, H]):
    """One kind of group.

    Attributes:
        name: "classic" or "fenced".
        option: what `scripts/simulate` needs to know beside the seed; ends with a space.
        draw: returns the settings of a seed, for a group of so many nodes, or of as many as the
            seed draws.
        simulation: begins a run.
        faults: names under which a run notes the faults that did something.
        scenarios: the folder with the scripts.
        options: the settings that a script may have.
        settings_of: returns what a script says, as settings.
        options_of: returns settings, as lines of a script.
        phase_seconds_min: nothing is said about shorter phases of a script.
        phase_words: returns how the sends of a phase ended.
        ending_words: returns what else a script keeps of a run.
    """

    name: str
    option: str
    draw: Callable[[int, int | None], S]
    simulation: Callable[[S, Trace], Simulation[S, Any, H]]
    faults: tuple[str, ...]
    scenarios: Path
    options: frozenset[str]
    settings_of: Callable[[Scenario], S]
    options_of: Callable[[S], list[str]]
    phase_seconds_min: float
    phase_words: Callable[[list[Send]], str]
    ending_words: Callable[[Result[S, H]], list[str]]

    def run(self, settings: S, *, print_line: PrintLine | None = None) -> Result[S, H]:
        """Play one run from beginning to end. `print_line` sees the trace as it grows."""
        return run_settings(self.simulation, settings, print_line=print_line)

    def run_seed(
        self, seed: int, *, node_count: int | None = None, print_line: PrintLine | None = None
    ) -> Result[S, H]:
        """Play the run of a seed."""
        return self.run(self.draw(seed, node_count), print_line=print_line)

    # Scripts

    def scenario_names(self) -> list[str]:
        """Return which scripts there are."""
        return sorted(path.stem for path in self.scenarios.glob("*.txt"))

    def read_scenario(self, name: str) -> Scenario:
        """Read a script.

        Raises:
            ValueError: a line is not in the language.
        """
        return read_scenario(self._path(name), self.options)

    def play(self, scenario: Scenario, *, print_line: PrintLine | None = None) -> Result[S, H]:
        """Play a script."""
        return self.run(self.settings_of(scenario), print_line=print_line)

    def outcome(self, scenario: Scenario, result: Result[S, H]) -> tuple[str, ...]:
        """Return what happened, as it is recorded in the file."""
        told = phases(
            scenario,
            result.history.sends,
            began=result.load_started_at,
            seconds_min=self.phase_seconds_min,
        )
        findings = ", ".join(finding.text for finding in result.findings)
        return (
            *(f"{phase} {self.phase_words(phase.sends)}" for phase in told),
            *self.ending_words(result),
            f"findings: {findings or 'none'}",
        )

    def record(self, scenario: Scenario, result: Result[S, H]) -> None:
        """Write the outcome of a run into the script's file."""
        write_outcome(self._path(scenario.name), self.outcome(scenario, result))

    def script(self, settings: S, prose: list[str]) -> str:
        """Return settings as the text of a script."""
        lines = [
            *(f"# {line}" for line in prose),
            f"seed {settings.seed}",
            *self.options_of(settings),
            f"load {settings.load_seconds:g}",
            "",
            *map(str, settings.plan),
        ]
        return "\n".join(lines) + "\n"

    def _path(self, name: str) -> Path:
        return self.scenarios / f"{name}.txt"
