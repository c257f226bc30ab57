"""`python -m tests.sim`: campaigns of seeds, and how soon deliberate bugs are caught.

    python -m tests.sim --seeds 1000 --jobs 2       fenced groups
    python -m tests.sim --seeds 300 --nodes 5       only groups of five nodes
    python -m tests.sim --seeds 200 --classic       classic groups
    python -m tests.sim --seeds 200 --consumers     consumer groups and transactions
    python -m tests.sim --seeds 200 --pop           POP, at fenced groups
    python -m tests.sim --seeds 200 --versions      fenced groups of two versions, upgraded and back
    python -m tests.sim shrink 1234                 make a failing seed small
    python -m tests.sim mutants --seeds 500         after how many seeds each mutant dies

`--classic`, `--consumers`, `--pop` and `--versions` go with all three, the first two with each
other.
Exit status 0 if every promise was kept, or every mutant died.
"""

import argparse
import os
import sys

from rich.console import Console

from tests.sim.campaign import campaign, shrink_seed
from tests.sim.mutants import show_mutants


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="*", help="nothing, `shrink SEED`, or `mutants [NAME...]`")
    parser.add_argument("--seeds", type=int, default=300, help="how many (300)")
    parser.add_argument("--start", type=int, default=0, help="the first one (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--nodes", type=int, choices=(3, 5), help="only groups of this size")
    parser.add_argument("--classic", action="store_true", help="classic groups")
    parser.add_argument("--consumers", action="store_true", help="consumer groups, transactions")
    parser.add_argument("--pop", action="store_true", help="consumers that receive by POP")
    parser.add_argument("--versions", action="store_true", help="fenced groups of two versions")
    options = parser.parse_intermixed_args(arguments)
    kind = "classic" if options.classic else "fenced"
    kind += "-consumers" if options.consumers else ""
    if options.pop:
        kind = "fenced-pop"
    if options.versions:
        kind = "fenced-versions"
    if options.classic and options.nodes == 5:
        parser.error("classic groups have three nodes")
    match options.what:
        case []:
            seeds = range(options.start, options.start + options.seeds)
            reports = campaign(seeds, jobs=options.jobs, kind=kind, node_count=options.nodes)
            return 1 if any(report.findings for report in reports) else 0
        case ["shrink", seed] if seed.isdigit():
            text = shrink_seed(int(seed), kind=kind, node_count=options.nodes, say=_say)
            _say(text or f"seed {seed} keeps every promise")
            return 1 if text else 0
        case ["mutants", *names]:
            return show_mutants(
                Console(), names, kind=kind, seeds_max=options.seeds, jobs=options.jobs
            )
        case what:
            _say(f"{' '.join(what)!r} is neither `shrink SEED` nor `mutants [NAME...]`")
            return 2


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
