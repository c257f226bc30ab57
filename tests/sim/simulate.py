"""`scripts/simulate`: replays one seed or one scenario, and says what happened.

    scripts/simulate 1234                   the verdict, the plan, the warnings of the nodes
    scripts/simulate 1234 --trace           every event as well, as it happens
    scripts/simulate 0-499                  many seeds; prints those that fail
    scripts/simulate both-slaves-lost       a scenario of tests/sim/scenarios
    scripts/simulate both-slaves-lost --record    write what happened into its file
    scripts/simulate --fenced 1234          a seed of a fenced group
    scripts/simulate --consumers 1234       with consumer groups; also with --fenced
    scripts/simulate --pop 1234             with consumers that receive by POP, at a fenced group
    scripts/simulate --versions 1234        a fenced group of two versions

Exit status 0 if every promise was kept.
"""

import argparse
import sys
from typing import Any

from tests.sim.engine.playbook import Playbook
from tests.sim.engine.trace import PrintLine
from tests.sim.playbooks import PLAYBOOKS


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/simulate", description="Replay a simulated run.")
    parser.add_argument("what", help="a seed, a range of seeds (0-499), or a scenario's name")
    parser.add_argument("--trace", action="store_true", help="print every event as it happens")
    parser.add_argument("--record", action="store_true", help="write a scenario's outcome to it")
    parser.add_argument("--fenced", action="store_true", help="seeds of fenced groups")
    parser.add_argument("--consumers", action="store_true", help="seeds with consumer groups")
    parser.add_argument("--pop", action="store_true", help="seeds with POP, at fenced groups")
    parser.add_argument("--versions", action="store_true", help="fenced groups of two versions")
    options = parser.parse_args(arguments)
    print_line = _say if options.trace else None
    scenarios = {name: book for book in PLAYBOOKS.values() for name in book.scenario_names()}
    if options.what in scenarios:
        book = scenarios[options.what]
        return _play_scenario(book, options.what, print_line, is_to_record=options.record)
    first, _, last = options.what.partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        names = ", ".join(scenarios)
        parser.error(f"{options.what!r} is neither a seed nor a scenario ({names})")
    seeds = range(int(first), int(last or first) + 1)
    kind = "fenced" if options.fenced else "classic"
    kind = f"{kind}-consumers" if options.consumers else kind
    if options.pop or options.versions:
        kind = "fenced-pop" if options.pop else "fenced-versions"
    book = PLAYBOOKS[kind]
    return _play_seeds(book, seeds, print_line)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _play_seeds(book: Playbook[Any, Any], seeds: range, print_line: PrintLine | None) -> int:
    failed = 0
    for seed in seeds:
        result = book.run_seed(seed, print_line=print_line)
        failed += bool(result.findings)
        _say(result.report() if result.findings or len(seeds) == 1 else result.summary())
    return 1 if failed else 0


def _play_scenario(
    book: Playbook[Any, Any], name: str, print_line: PrintLine | None, *, is_to_record: bool
) -> int:
    scenario = book.read_scenario(name)
    result = book.play(scenario, print_line=print_line)
    _say(result.report())
    _say("\n".join(book.outcome(scenario, result)))
    if is_to_record:
        book.record(scenario, result)
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
