"""Hunts deliberate bugs: after how many seeds the simulation notices each.

python -m tests.sim mutants
python -m tests.sim mutants --classic --seeds 50 "waits for"
"""

import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from tests.sim.engine.mutation import Mutation
from tests.sim.engine.simulation import Result
from tests.sim.playbooks import MUTATIONS, PLAYBOOKS

SEEDS_MAX = 500


class Verdict(msgspec.Struct, frozen=True):
    """How one mutant fared.

    `seeds` is how many were played until it was caught, those left out that cannot show it, and 0
    if it survived. `seed` is the one that caught it.
    """

    name: str
    seeds: int = 0
    seed: int = -1
    found: str = ""


def hunt(name: str, kind: str, seeds_max: int = SEEDS_MAX) -> Verdict:
    """Play seeds with a mutant until one of them catches it."""
    mutation = MUTATIONS[kind][name]
    for played, seed in enumerate(islice(_seeds_for(mutation, kind), seeds_max)):
        if found := caught(name, kind, seed):
            return Verdict(name, played + 1, seed, found)
    return Verdict(name)


def _seeds_for(mutation: Mutation, kind: str) -> Iterator[int]:
    """Yield the seeds that can show a mutation, one after the other."""
    draw = PLAYBOOKS[kind].draw
    return (seed for seed in count() if mutation.shows(draw(seed, None)))


def caught(name: str, kind: str, seed: int) -> str:
    """Return as what a seed catches a mutant; empty if it does not."""
    return _caught_as(name, kind, lambda: PLAYBOOKS[kind].run_seed(seed))


def caught_in(name: str, kind: str, script: str) -> str:
    """Return as what a scenario catches a mutant; empty if it does not."""
    book = PLAYBOOKS[kind]
    return _caught_as(name, kind, lambda: book.play(book.read_scenario(script)))


def _caught_as(name: str, kind: str, play: Callable[[], Result[Any, Any]]) -> str:
    mutation = MUTATIONS[kind][name]
    try:
        with mutation.applied():
            findings = play().findings
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # a mutant may break anything
        return "" if mutation.caught_as else f"DIED ({type(error).__name__})"
    kinds = {finding.kind for finding in findings}
    if mutation.caught_as and not kinds & mutation.caught_as:
        return ""
    return ", ".join(sorted(kind.name for kind in kinds))


def show_mutants(
    console: Console, names: list[str], *, kind: str, seeds_max: int, jobs: int
) -> int:
    """Hunt mutants and print how each fared; return the exit status."""
    every = MUTATIONS[kind]
    chosen = [name for name in every if not names or any(part in name for part in names)]
    table = Table("mutant", "caught after", "by seed", "found", title="deliberate bugs")
    survived = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for verdict in pool.imap(partial(hunt, kind=kind, seeds_max=seeds_max), chosen):
            survived += not verdict.seeds
            after = f"{verdict.seeds} seeds" if verdict.seeds else "SURVIVED"
            console.print(f"{verdict.name}: {after} {verdict.found}", markup=False)
            table.add_row(verdict.name, after, str(verdict.seed), verdict.found)
    console.print(table)
    return 1 if survived else 0
