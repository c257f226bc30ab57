"""Many seeds on several processes: progress, outcomes, which faults were really hit.

    python -m tests.sim --seeds 1000 --jobs 2
    python -m tests.sim --seeds 300 --start 5000 --nodes 5
    python -m tests.sim --seeds 200 --classic
    python -m tests.sim shrink 1234

A fault counts as hit when it did something: a kill of a node that ran, a partition that was set up,
a bit that was flipped in bytes on their way. Each kind should be hit in 1 % of the seeds or more;
the table says which are not.
"""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.sim.engine.shrink import Shrinker
from tests.sim.playbooks import PLAYBOOKS

HIT_SHARE_MIN: Final = 0.01
FAILURES_SHOWN_MAX: Final = 20
TOLD_MAX: Final = 5


class SeedReport(msgspec.Struct, frozen=True):
    """What a campaign keeps of one seed."""

    seed: int
    findings: tuple[str, ...]
    kinds: tuple[str, ...]
    hit: tuple[str, ...]
    outcomes: dict[str, int]
    virtual_seconds: float
    switches: int = 0
    is_excused: bool = False


def run_one(seed: int, *, kind: str, node_count: int | None) -> SeedReport:
    """Play a seed. Whatever it ends with becomes a report: one seed does not end a campaign."""
    try:
        result = PLAYBOOKS[kind].run_seed(seed, node_count=node_count)
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # told in the report
        text = f"{type(error).__name__}: {error}"
        return SeedReport(seed, (f"DIED: {text}",), ("DIED",), (), {}, 0.0)
    return SeedReport(
        seed,
        tuple(f"{finding.kind.name}: {finding.text}" for finding in result.findings),
        tuple(sorted({finding.kind.name for finding in result.findings})),
        tuple(sorted(result.hit)),
        dict(Counter(send.outcome.name for send in result.history.sends)),
        result.virtual_seconds,
        result.switches,
        result.is_excused,
    )


def _play_all(play: Callable[[int], SeedReport], seeds: range, jobs: int) -> Iterator[SeedReport]:
    if jobs <= 1:
        yield from map(play, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(play, seeds, chunksize=4)


def campaign(
    seeds: range,
    *,
    jobs: int,
    kind: str = "fenced",
    node_count: int | None = None,
    console: Console | None = None,
) -> list[SeedReport]:
    """Play all seeds; show how it goes, and at the end what was seen."""
    console = console or Console()
    play = partial(run_one, kind=kind, node_count=node_count)
    reports: list[SeedReport] = []
    started = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for report in _play_all(play, seeds, jobs):
            reports.append(report)
            failed = sum(bool(r.findings) for r in reports)
            progress.update(task, advance=1, description=f"seeds, {failed} failed")
            if report.findings:
                progress.console.print(f"seed {report.seed}: {report.findings[0]}", markup=False)
    reports.sort(key=lambda report: report.seed)
    _show(console, reports, time.monotonic() - started, kind)
    return reports


def _show(console: Console, reports: list[SeedReport], seconds: float, kind: str) -> None:
    hit = Counter(name for report in reports for name in report.hit)
    hit.update(dict.fromkeys(PLAYBOOKS[kind].faults, 0))
    console.print(_hit_table(hit, len(reports)))
    console.print(_outcome_table(reports))
    failed = [report for report in reports if report.findings]
    per_minute = len(reports) / seconds * 60 if seconds else 0.0
    console.print(
        f"{len(reports)} seeds, {len(failed)} failed, {per_minute:.0f} seeds per minute,"
        f" {sum(r.virtual_seconds for r in reports) / 3600:.1f} hours of virtual time"
    )
    console.print(_rare_faults(hit, len(reports)), markup=False)
    option = PLAYBOOKS[kind].option
    for report in failed[:FAILURES_SHOWN_MAX]:
        kinds = ", ".join(report.kinds)
        line = f"{kinds}: scripts/simulate {option}{report.seed} --trace"
        console.print(line, markup=False, soft_wrap=True)


def _hit_table(hit: Counter[str], seed_count: int) -> Table:
    table = Table("fault", "seeds", "share", title="faults that did something")
    for name, count in hit.most_common():
        share = count / seed_count
        table.add_row(name, str(count), f"{share:.1%}{'' if share >= HIT_SHARE_MIN else '  < 1 %'}")
    return table


def _rare_faults(hit: Counter[str], seed_count: int) -> str:
    rare = [name for name, count in hit.most_common() if count < HIT_SHARE_MIN * seed_count]
    if not rare:
        return f"each of {len(hit)} kinds of faults did something in 1 % of the seeds or more"
    return f"in less than 1 % of the seeds: {', '.join(rare)}"


def _outcome_table(reports: list[SeedReport]) -> Table:
    outcomes: Counter[str] = Counter()
    for report in reports:
        outcomes.update(report.outcomes)
    kinds = Counter(kind for report in reports for kind in report.kinds)
    table = Table("what", "count", title="outcomes")
    for name, count in outcomes.items():
        table.add_row(f"sends: {name}", str(count))
    if elections := sum(report.switches for report in reports):
        table.add_row("elections won", str(elections))
        table.add_row("seeds without an electable node", str(sum(r.is_excused for r in reports)))
    for name, count in kinds.most_common():
        table.add_row(f"seeds with {name}", str(count))
    return table


def shrink_seed(seed: int, *, kind: str, node_count: int | None, say: Callable[[str], None]) -> str:
    """Return the smallest run like that of a failing seed, as a script; empty if it passes."""
    book = PLAYBOOKS[kind]
    settings = book.draw(seed, node_count)
    findings = book.run(settings).findings
    if not findings:
        return ""
    smaller = Shrinker(
        settings,
        frozenset(finding.kind for finding in findings),
        run=lambda smaller: book.run(smaller).findings,
        on_progress=say,
    ).shrink()
    prose = [f"    {finding.kind.name}: {finding.text}" for finding in findings[:TOLD_MAX]]
    return book.script(smaller, [f"Shrunk from seed {seed}. What was found:", *prose])
