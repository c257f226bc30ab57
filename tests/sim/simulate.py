"""`scripts/simulate`: replay one seed or one scenario, and tell what happened.

    scripts/simulate 1234                   the verdict, the plan, the warnings of the nodes
    scripts/simulate 1234 --trace           every event as well, as it happens
    scripts/simulate 0-499                  many seeds; prints those that fail
    scripts/simulate both-slaves-lost       a scenario of tests/sim/scenarios
    scripts/simulate both-slaves-lost --record    write what happened into its file
    scripts/simulate --fenced 1234          a seed of a fenced group

Exit status 0 if every promise was kept.
"""

import argparse
import sys

from tests.sim import fenced_scenario
from tests.sim.fenced_simulation import run_fenced_seed
from tests.sim.scenario import (
    SCENARIOS,
    Scenario,
    outcome_lines,
    play,
    read_scenario,
    record,
)
from tests.sim.simulation import run_seed
from tests.sim.trace import PrintLine


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/simulate", description="Replay a simulated run.")
    parser.add_argument("what", help="a seed, a range of seeds (0-499), or a scenario's name")
    parser.add_argument("--trace", action="store_true", help="print every event as it happens")
    parser.add_argument("--record", action="store_true", help="write a scenario's outcome to it")
    parser.add_argument("--fenced", action="store_true", help="seeds of fenced groups")
    options = parser.parse_args(arguments)
    print_line = _say if options.trace else None
    if (fenced_scenario.SCENARIOS / f"{options.what}.txt").exists():
        return _play_fenced(options.what, print_line, is_to_record=options.record)
    if (SCENARIOS / f"{options.what}.txt").exists():
        scenario = read_scenario(options.what)
        return _play(scenario, print_line, is_to_record=options.record)
    first, _, last = options.what.partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        paths = (*SCENARIOS.glob("*.txt"), *fenced_scenario.SCENARIOS.glob("*.txt"))
        names = ", ".join(sorted(path.stem for path in paths))
        parser.error(f"{options.what!r} is neither a seed nor a scenario ({names})")
    failed = 0
    for seed in range(int(first), int(last or first) + 1):
        result = (run_fenced_seed if options.fenced else run_seed)(seed, print_line=print_line)
        failed += bool(result.findings)
        if result.findings or not last:
            _say(result.report())
        else:
            _say(result.summary())
    return 1 if failed else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _play(scenario: Scenario, print_line: PrintLine | None, *, is_to_record: bool) -> int:
    result = play(scenario, print_line)
    _say(result.report())
    lines = outcome_lines(scenario, result)
    _say("\n".join(lines))
    if is_to_record:
        record(scenario, result)
    return 1 if result.findings else 0


def _play_fenced(name: str, print_line: PrintLine | None, *, is_to_record: bool) -> int:
    scenario = fenced_scenario.read_scenario(name)
    result = fenced_scenario.play(scenario, print_line)
    _say(result.report())
    _say("\n".join(fenced_scenario.outcome_lines(scenario, result)))
    if is_to_record:
        fenced_scenario.record(scenario, result)
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
