"""What drills of RocketMQ and of our groups come to: the table of docs/drills/rocketmq-5.3.3.md.

    python -P -m benchmarks.rocketmq_drills --rocketmq maven:5.3.3 [--repeat 4] [--total 20]
        [--minutes 480] [--only 'controller*' ...] [--out DIRECTORY] [--keep FILE]
        [--evidence DIRECTORY] [--list | --table | --page]

A drill plays one scenario on one configuration `--repeat` times on one cluster, and audits it once.
What came of it is appended to the file of `--keep`, one JSON object a line, and the row of the
table is made of all lines of its scenario and configuration. So the table is filled in several
goes: a go plays the row that has the fewest runs, again and again, until every row has `--total`
runs or `--minutes` have passed. A drill that could not be run has a line, too, and counts for no
run; a row whose drills could not be run three times in one go waits for the next one. Ctrl-C or
SIGTERM ends a go and the drill that it plays; of that one nothing is kept.

Our groups play the same scenarios as RocketMQ's: the same steps, and deadlines that are multiplied
by `PATIENCE_OF_OURS`, so that a node of ours on a slow machine is not given up before a broker is.
One is of our own (`OWN`): without its slaves a fenced master acknowledges nothing, and RocketMQ's
scenario waits until it does.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tandem.drill.scenario import ENDED_EARLY
from tandem.drill.scenario_file import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DURATION_SECONDS: Final = 12
RATE_PER_SECOND: Final = 200
RUN_SECONDS_MAX: Final = 900.0
"""For each run of a drill, with its share of the start: Java on a machine with too much to do."""

PATIENCE_OF_OURS: Final = 3
"""As RocketMQ's target has it for a start of Java. An attempt of a send then waits 4.5 s for its
answer, about as long as one to RocketMQ, 5 s."""

PATIENCE_OF_ROCKETMQ: Final = {"master-freeze": 2}
"""Beside what its target has. A former master that wakes up may be away for more than 240 s, which
ends a drill, and says no more than that."""

KEPT: Final = Path(__file__).with_name("rocketmq_drills.jsonl")
PAGE: Final = Path(__file__).parents[1] / "docs" / "drills" / "rocketmq-5.3.3.md"
HEAD: Final = (
    "| configuration | scenario | runs | acknowledged | lost | stored twice | sent again |"
    " out of order | logs that differ | without SEND_OK, median | longest | verdict |"
)
NOT_RUN: Final = "NOT RUN"
NOT_RUN_MAX: Final = 3
TANDEM: Final = (sys.executable, "-P", "-c", "from tandem.cli import main; main()")
SCENARIOS: Final = FOLDER / "rocketmq"


class Configuration(msgspec.Struct, frozen=True):
    """What is drilled, by which scenarios. `options`: of the drill; of ours, of `cluster init`.

    `rocketmq`: whose jars, where it is not what the command line says.
    """

    name: str
    options: tuple[str, ...]
    scenarios: tuple[str, ...]
    rocketmq: str = ""


_ELECTED: Final = (
    *("master-kill", "master-freeze", "master-restart", "slaves-kill", "everybody-at-once"),
)
_CLASSIC: Final = ("slave-loss", "master-loss", "freeze-and-resume")

CONFIGURATIONS: Final = (
    Configuration("controller, as its quick start", ("--mode", "controller"), _ELECTED),
    Configuration(
        "controller, allAckInSyncStateSet=false",
        ("--mode", "controller", "--set", "allAckInSyncStateSet=false"),
        _ELECTED[:2],
    ),
    Configuration(
        "sync-master, inSyncReplicas=2",
        ("--mode", "sync-master", "--set", "inSyncReplicas=2"),
        _CLASSIC,
    ),
    Configuration("sync-master, as shipped", ("--mode", "sync-master"), _CLASSIC[:2]),
    Configuration("async-master, as shipped", ("--mode", "async-master"), _CLASSIC[:2]),
    Configuration(
        "5.5.0, controller, as its quick start",
        ("--mode", "controller"),
        _ELECTED[:2],
        "maven:5.5.0",
    ),
    Configuration(
        "5.5.0, sync-master, inSyncReplicas=2",
        ("--mode", "sync-master", "--set", "inSyncReplicas=2"),
        _CLASSIC[1:2],
        "maven:5.5.0",
    ),
)
OURS: Final = (
    Configuration("TandemMQ, fenced", (), _ELECTED),
    Configuration("TandemMQ, classic", ("--classic",), _CLASSIC),
)

OWN: Final = (("TandemMQ, fenced", "slaves-kill"),)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One drill of one scenario on one configuration, or all of them together."""

    configuration: str
    scenario: str
    runs: int
    verdict: str
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    stored_again: int = 0
    out_of_order: int = 0
    differ: int = 0
    median_seconds: float | None = None
    longest_seconds: float | None = None
    unavailable_seconds: list[float] = []
    """Without SEND_OK, of each run by itself; drills of old have only their median and longest."""
    wall_seconds: float = 0.0
    """How long the drill took, starts and audit included."""
    note: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Which row of the table it is of."""
        return self.configuration, self.scenario


def row_of(
    configuration: Configuration,
    scenario: str,
    summary: Any,  # noqa: ANN401 - JSON
    wall_seconds: float = 0.0,
) -> Row:
    """Return what a summary says. A run counts that was played, up to its fault at least."""
    played = [run for run in summary["runs"] if _shows_something(run)]
    unavailable = summary["unavailability"]
    return Row(
        configuration=configuration.name,
        scenario=scenario,
        runs=len(played),
        verdict=summary["verdict"],
        acknowledged=summary["sync_acknowledged"] or 0,
        lost=summary["sync_lost"] or 0,
        duplicated=summary["duplicated"] or 0,
        stored_again=summary["stored_again"] or 0,
        out_of_order=(summary["out_of_order"] or 0) + summary["read_out_of_order"],
        differ=_differing(summary),
        median_seconds=unavailable[0]["median_seconds"] if unavailable else None,
        longest_seconds=unavailable[0]["max_seconds"] if unavailable else None,
        unavailable_seconds=[
            run["unavailable_seconds"] for run in played if run["unavailable_seconds"] is not None
        ],
        wall_seconds=round(wall_seconds, 1),
        note=summary["stopped_because"],
    )


def _shows_something(run: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether something was done to the cluster: since then it counts what is unavailable."""
    is_cut_off = run["outcome"] == ENDED_EARLY and run["unavailable_seconds"] is None
    return not (is_cut_off or run["outcome"].startswith("not possible"))


def _differing(summary: Any) -> int:  # noqa: ANN401 - JSON
    """How many logs differ. Of a drill that ended early, not those that had no time to catch up."""
    shorter = summary["shorter_slaves"] or () if summary["stopped_because"] else ()
    identical = summary["identical_by_slave"] or {}
    return sum(not same for name, same in identical.items() if name not in shorter)


def together(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each scenario and configuration, in the order of the first of each."""
    places = dict.fromkeys(row.place for row in rows)
    return [_sum([row for row in rows if row.place == place]) for place in places]


def in_order(places: Sequence[tuple[str, str]], rows: Sequence[Row]) -> list[Row]:
    """Return the rows of these places, in their order."""
    return [row for place in places for row in rows if row.place == place]


def _sum(rows: Sequence[Row]) -> Row:
    """Add up drills of one place. The verdict counts drills if there is more than one kind."""
    played = [row for row in rows if row.runs]
    seconds = [each for row in played for each in row.unavailable_seconds]
    medians = seconds or [row.median_seconds for row in played if row.median_seconds is not None]
    longest = [row.longest_seconds for row in played if row.longest_seconds is not None]
    verdicts = Counter(row.verdict for row in rows)
    first = rows[0]
    return Row(
        configuration=first.configuration,
        scenario=first.scenario,
        **{
            name: sum(getattr(row, name) for row in played)
            for name in (
                *("runs", "acknowledged", "lost", "duplicated"),
                *("stored_again", "out_of_order", "differ"),
            )
        },
        median_seconds=round(median(medians), 3) if medians else None,
        longest_seconds=max([*longest, *seconds], default=None),
        unavailable_seconds=seconds,
        verdict=first.verdict
        if len(verdicts) == 1
        else ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())),
        note="; ".join(dict.fromkeys(row.note for row in rows if row.note)),
    )


def next_row(
    places: Sequence[tuple[str, str]], known: Sequence[Row], total: int, given_up: Counter[Any]
) -> tuple[str, str] | None:
    """Return the place with the fewest runs, or None if each has `total` or was given up."""
    runs = Counter[tuple[str, str]]()
    for row in known:
        runs[row.place] += row.runs
    left = [each for each in places if runs[each] < total and given_up[each] < NOT_RUN_MAX]
    return min(left, key=lambda each: runs[each], default=None)


def runs_left(place: tuple[str, str], known: Sequence[Row], total: int) -> int:
    """Return how many runs a row lacks."""
    return total - sum(row.runs for row in known if row.place == place)


def read_rows(file: Path) -> list[Row]:
    """Return what is known. A line that a crash has torn is passed over."""
    found = []
    for line in file.read_bytes().splitlines() if file.exists() else []:
        with suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=Row))
    return found


def add_row(file: Path, row: Row) -> None:
    """Append a line, and begin a new one if the last was torn."""
    before = file.read_bytes() if file.exists() else b""
    is_torn = bool(before) and not before.endswith(b"\n")
    with file.open("ab") as kept:
        kept.write(b"\n" * is_torn + msgspec.json.encode(row) + b"\n")


def play(
    configuration: Configuration, scenario: str, repeat: int, options: argparse.Namespace
) -> Row:
    """Play one drill of a row, `repeat` runs long."""
    started = time.monotonic()
    if options.out is not None:
        Path(options.out).mkdir(parents=True, exist_ok=True)
    # Nodes that have just been killed may still write.
    with tempfile.TemporaryDirectory(dir=options.out, ignore_cleanup_errors=True) as directory:
        try:
            done = subprocess.run(
                drill_command(configuration, scenario, repeat, options, Path(directory)),
                check=False,
                stdout=subprocess.PIPE,
                timeout=RUN_SECONDS_MAX * repeat,
            )
        except subprocess.TimeoutExpired:
            done = None
        if done is None or not done.stdout.strip():
            note = "took too long" if done is None else f"exit status {done.returncode}"
            return Row(
                configuration=configuration.name,
                scenario=scenario,
                runs=0,
                verdict=NOT_RUN,
                note=note,
            )
        summary = msgspec.json.decode(done.stdout)
        if summary["verdict"] != "PASSED" and options.evidence:
            name = f"{configuration.name} {scenario}".replace(", ", " ").replace(" ", "-")
            Path(options.evidence).mkdir(parents=True, exist_ok=True)
            file = Path(options.evidence, f"{name}-{time.time_ns() // 1_000_000}.json")
            file.write_bytes(done.stdout)
        return row_of(configuration, scenario, summary, time.monotonic() - started)


def drill_command(
    configuration: Configuration,
    scenario: str,
    repeat: int,
    options: argparse.Namespace,
    directory: Path,
) -> list[str]:
    """Return what plays one row below `directory`; of ours, the cluster file is written there.

    It ends with this process, however that ends, where `setpriv` (util-linux) is.
    """
    setpriv = shutil.which("setpriv")
    command = [*((setpriv, "--pdeathsig", "KILL") if setpriv else ()), *TANDEM, "drill"]
    if configuration in OURS:
        cluster = directory / "cluster.yaml"
        base = f"127.{random.randint(64, 250)}.{random.randint(1, 250)}"  # beside other clusters
        addresses = [word for last in (1, 2, 3) for word in ("--address", f"{base}.{last}")]
        init = [*TANDEM, "cluster", "init", str(cluster), *configuration.options, *addresses]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL)
        folder = FOLDER if (configuration.name, scenario) in OWN else SCENARIOS
        command += [str(folder / f"{scenario}.yaml"), "--config", str(cluster)]
        command += ["--patience", str(PATIENCE_OF_OURS)]
    else:
        jars = configuration.rocketmq or options.rocketmq
        command += [scenario, "--target", "rocketmq", "--rocketmq", jars]
        command += configuration.options
        command += ["--patience", str(PATIENCE_OF_ROCKETMQ.get(scenario, 1))]
    command += ["--repeat", str(repeat), "--duration", str(DURATION_SECONDS)]
    command += ["--rate", str(RATE_PER_SECOND), "--seed", str(random.randint(1, 999_999))]
    return [*command, "--out", str(directory / "drill"), "--format", "json"]


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [HEAD, "|" + " --- |" * 12]
    for row in rows:
        seconds = [
            "-" if each is None else f"{each:.1f} s"
            for each in (row.median_seconds, row.longest_seconds)
        ]
        cells = (
            *(row.configuration, row.scenario, row.runs, f"{row.acknowledged:,}", row.lost),
            *(row.duplicated, row.stored_again, row.out_of_order, row.differ, *seconds),
            row.verdict + (f": {row.note}" if row.note else ""),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def with_table(page: str, rows: list[Row]) -> str:
    """Return a page with this table in the place of the one that it has."""
    before, head, rest = page.partition(HEAD)
    if not head:
        raise ValueError(f"the page has no table that begins with {HEAD!r}")
    _, end, after = rest.partition("\n\n")
    return f"{before}{table(rows)}{end}{after}"


def main() -> None:
    """Play what was asked for and print the table of all that is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rocketmq", default="maven:5.3.3", metavar="DIRECTORY")
    parser.add_argument("--repeat", type=int, default=4, help="runs on one cluster, at most")
    parser.add_argument("--total", type=int, default=20, help="runs that each row is to have")
    parser.add_argument("--minutes", type=float, default=480.0, help="how long drills begin")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="CONFIGURATION/SCENARIO")
    parser.add_argument("--out", default=None, help="for the data of drills; removed after each")
    parser.add_argument("--keep", type=Path, default=KEPT)
    parser.add_argument("--evidence", default=None, help="summaries of what did not pass go here")
    parser.add_argument("--list", action="store_true", help="name the rows, their runs, and end")
    parser.add_argument("--table", action="store_true", help="print the table and end")
    parser.add_argument("--page", action="store_true", help="write it into the page, and end")
    options = parser.parse_args()
    rows = {
        (each.name, name): each
        for each in (*CONFIGURATIONS, *OURS)
        for name in each.scenarios
        if any(fnmatch(f"{each.name}/{name}", pattern) for pattern in options.only)
    }
    if options.list:
        runs = {row.place: row.runs for row in together(read_rows(options.keep))}
        for place in rows:
            print(f"{'/'.join(place)}: {runs.get(place, 0)} of {options.total}")
        return
    if options.page:
        known = together(in_order(list(rows), read_rows(options.keep)))
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), known), "utf-8")
        return
    if not options.table:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        fill(
            rows,
            options,
            lambda place, repeat: play(rows[place], place[1], repeat, options),
        )
    print(table(together(in_order(list(rows), read_rows(options.keep)))))


def fill(
    rows: dict[tuple[str, str], Configuration],
    options: argparse.Namespace,
    played: Callable[[tuple[str, str], int], Row],
) -> None:
    """Play drills until each row has its runs, or the time is over."""
    given_up: Counter[tuple[str, str]] = Counter()
    until = time.monotonic() + options.minutes * 60
    while time.monotonic() < until:
        known = read_rows(options.keep)
        place = next_row(list(rows), known, options.total, given_up)
        if place is None:
            return
        print("/".join(place), file=sys.stderr)
        row = played(place, min(options.repeat, runs_left(place, known, options.total)))
        given_up[place] += not row.runs
        add_row(options.keep, row)


if __name__ == "__main__":
    main()
