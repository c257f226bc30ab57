"""Run the table of compatibility: `python -P -m tests.compat --help` says how."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from tests.compat.programs import NotToBeHadError
from tests.compat.suites import SUITES
from tests.compat.table import Outcome, as_text, rows_of
from tests.compat.targets import TARGET_NAMES, Target, TargetName, running_target

Name = TypeVar("Name", bound=str)


def main() -> int:
    """Run what is asked for; 1 if something that RocketMQ does fails here and is not refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("--target", help=f"some of {','.join(TARGET_NAMES)}; default: all")
    parser.add_argument("--only", help=f"some of {','.join(SUITES)}; default: all")
    parser.add_argument("--name", default="", help="run scenarios with this in their name")
    parser.add_argument("--keep", type=Path, help="a directory for stores and logs, kept")
    options = parser.parse_args()
    targets = _chosen(options.target, TARGET_NAMES, parser)
    suites = _chosen(options.only, tuple(SUITES), parser)
    place = nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory()
    with place as directory:
        outcomes = run_table(targets, suites, options.name, Path(directory))
    rows = rows_of(outcomes)
    sys.stdout.write(as_text(rows))
    return int(any(row.failures for row in rows))


def _chosen(
    given: str | None, known: tuple[Name, ...], parser: argparse.ArgumentParser
) -> list[Name]:
    if given is None:
        return list(known)
    names = given.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: known are {', '.join(known)}")
    return [name for name in known if name in names]


def run_table(
    targets: Sequence[TargetName], suites: Sequence[str], part: str, directory: Path
) -> list[Outcome]:
    """Run suites against targets, one after the other; what cannot be had is told and left out."""
    outcomes: list[Outcome] = []
    for name in targets:
        home = directory / name
        home.mkdir(parents=True)
        try:
            with running_target(name, home) as target:
                for suite in suites:
                    outcomes += _run_suite(suite, target, directory / f"{suite}-{name}", part)
        except NotToBeHadError as error:
            sys.stderr.write(f"{name} is left out: {error}\n")
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
