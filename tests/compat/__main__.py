"""Run the table of compatibility: `python -P -m tests.compat --help` says how."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.compat.markdown import page_of
from tests.compat.programs import NotToBeHadError
from tests.compat.recorded import load_recorded, record
from tests.compat.suites import STAGES, SUITES, compared, suites_for
from tests.compat.table import Outcome, as_text, rows_of
from tests.compat.targets import OPEN, TARGET_NAMES, Guarded, Target, TargetName, running_target

Name = TypeVar("Name", bound=str)


def main() -> int:
    """Run what is asked for; return 1 if a row fails that RocketMQ passes and we do not refuse."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("--target", help=f"some of {','.join(TARGET_NAMES)}; default: all")
    parser.add_argument("--only", help=f"some of {','.join(SUITES)}; default: all")
    parser.add_argument("--tls", action="store_true", help="ours with TLS only; Java's programs")
    parser.add_argument("--users", action="store_true", help="to users only; Java's programs")
    parser.add_argument("--name", default="", help="run scenarios with this in their name")
    parser.add_argument("--keep", type=Path, help="a directory for stores and logs, kept")
    parser.add_argument("--markdown", type=Path, help="write the page here as well")
    parser.add_argument("--record", action="store_true", help="keep RocketMQ's results in the tree")
    options = parser.parse_args()
    targets = _chosen(options.target, TARGET_NAMES, parser)
    guarded = Guarded(with_tls=options.tls, with_users=options.users)
    suites = _chosen(options.only, suites_for(guarded), parser)
    place = nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory()
    with place as directory:
        outcomes = run_table(targets, suites, options.name, Path(directory), guarded)
        (Path(directory) / "outcomes.json").write_bytes(msgspec.json.encode(outcomes))
    if options.record:
        record(outcomes)
    if "real" not in targets:
        ran = {(outcome.suite, outcome.name) for outcome in outcomes}
        outcomes += [one for one in load_recorded() if (one.suite, one.name) in ran]
    rows = rows_of(compared(outcomes))
    if options.markdown:
        options.markdown.write_text(page_of(rows))
    sys.stdout.write(as_text(rows))
    return int(any(row.failures for row in rows))


def _chosen(
    given: str | None, known: Sequence[Name], parser: argparse.ArgumentParser
) -> list[Name]:
    if given is None:
        return list(known)
    names = given.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: known are {', '.join(known)}")
    return [name for name in known if name in names]


def run_table(
    targets: Sequence[TargetName],
    suites: Sequence[str],
    part: str,
    directory: Path,
    guarded: Guarded = OPEN,
) -> list[Outcome]:
    """Run suites against targets, one after the other; what cannot be had is told and left out."""
    outcomes: list[Outcome] = []
    for name in targets:
        home = directory / name
        home.mkdir(parents=True)
        try:
            with running_target(name, home, guarded) as target:
                outcomes += _run_stages(suites, target, directory, part)
        except NotToBeHadError as error:
            sys.stderr.write(f"{name} is left out: {error}\n")
    return outcomes


def _run_stages(suites: Sequence[str], target: Target, directory: Path, part: str) -> list[Outcome]:
    # The programs mostly wait, so those that leave each other alone run side by side.
    outcomes: list[Outcome] = []
    for stage in STAGES:
        with ThreadPoolExecutor(len(stage)) as threads:
            running = [
                threads.submit(
                    _run_suite, suite, target, directory / f"{suite}-{target.name}", part
                )
                for suite in stage
                if suite in suites
            ]
            outcomes += [outcome for one in running for outcome in one.result()]
    return outcomes


def _run_suite(suite: str, target: Target, directory: Path, part: str) -> list[Outcome]:
    directory.mkdir()
    sys.stderr.write(f"{suite} against {target.name}\n")
    try:
        return SUITES[suite](target, directory, part)
    except NotToBeHadError as error:
        sys.stderr.write(f"{suite} is left out: {error}\n")
        return []


if __name__ == "__main__":
    sys.exit(main())
