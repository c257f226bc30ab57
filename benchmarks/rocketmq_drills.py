"""What drills of RocketMQ and of our groups come to: the table of docs/drills/rocketmq-5.3.3.md.

    python -P -m benchmarks.rocketmq_drills --rocketmq maven:5.3.3 [--repeat 5]
        [--only 'controller*' ...] [--out DIRECTORY] [--keep FILE] [--evidence DIRECTORY] [--list]

A row is one scenario on one configuration, played `--repeat` times on one cluster and audited once.
Rows are appended to the file of `--keep` as they come, one JSON object a line; the table is made of
all of them, so that it can be made in several goes. A drill that cannot be run has a row, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import msgspec

DURATION_SECONDS: Final = 12
RATE_PER_SECOND: Final = 200
DRILL_SECONDS_MAX: Final = 1_800.0
TANDEM: Final = (sys.executable, "-P", "-c", "from tandem.cli import main; main()")


class Configuration(msgspec.Struct, frozen=True):
    """What is drilled, and by which scenarios."""

    name: str
    options: tuple[str, ...]
    scenarios: tuple[str, ...]


_ELECTED: Final = ("master-kill", "master-freeze", "master-restart", "slaves-kill")
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
)
OURS: Final = (
    Configuration("TandemMQ, fenced", (), ("master-kill", "master-freeze", "slaves-kill")),
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario on one configuration."""

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
    note: str = ""


def row_of(configuration: Configuration, scenario: str, repeat: int, summary: Any) -> Row:  # noqa: ANN401 - JSON
    """Return the row of a summary."""
    unavailable = summary["unavailability"]
    return Row(
        configuration=configuration.name,
        scenario=scenario,
        runs=len(summary["runs"]) or repeat,
        verdict=summary["verdict"],
        acknowledged=summary["sync_acknowledged"] or 0,
        lost=summary["sync_lost"] or 0,
        duplicated=summary["duplicated"] or 0,
        stored_again=summary["stored_again"] or 0,
        out_of_order=(summary["out_of_order"] or 0) + summary["read_out_of_order"],
        differ=sum(not same for same in (summary["identical_by_slave"] or {}).values()),
        median_seconds=unavailable[0]["median_seconds"] if unavailable else None,
        longest_seconds=unavailable[0]["max_seconds"] if unavailable else None,
        note=summary["stopped_because"],
    )


def play(configuration: Configuration, scenario: str, options: argparse.Namespace) -> Row:
    """Play one row."""
    target = (
        () if configuration in OURS else ("--target", "rocketmq", "--rocketmq", options.rocketmq)
    )
    with tempfile.TemporaryDirectory(dir=options.out) as report:
        command = [*TANDEM, "drill", scenario, *target, *configuration.options]
        command += ["--repeat", str(options.repeat), "--duration", str(DURATION_SECONDS)]
        command += ["--rate", str(RATE_PER_SECOND), "--out", str(Path(report, "drill"))]
        try:
            done = subprocess.run(
                [*command, "--format", "json"],
                check=False,
                stdout=subprocess.PIPE,
                timeout=DRILL_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            done = None
        if done is None or not done.stdout.strip():
            note = "took too long" if done is None else f"exit status {done.returncode}"
            return Row(
                configuration=configuration.name,
                scenario=scenario,
                runs=0,
                verdict="NOT RUN",
                note=note,
            )
        summary = msgspec.json.decode(done.stdout)
        if summary["verdict"] != "PASSED" and options.evidence:
            name = f"{configuration.name} {scenario}".replace(", ", " ").replace(" ", "-")
            Path(options.evidence, f"{name}.json").write_bytes(done.stdout)
        return row_of(configuration, scenario, options.repeat, summary)


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown."""
    head = (
        "| configuration | scenario | runs | acknowledged | lost | stored twice | sent again |"
        " out of order | logs that differ | without SEND_OK, median | longest | verdict |"
    )
    lines = [head, "|" + " --- |" * 12]
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


def main() -> None:
    """Play what was asked for and print the table of all that is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rocketmq", default="maven:5.3.3", metavar="DIRECTORY")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="CONFIGURATION/SCENARIO")
    parser.add_argument("--out", default=None, help="for the data of drills; removed after each")
    parser.add_argument("--keep", type=Path, default=Path("rocketmq-drills.jsonl"))
    parser.add_argument("--evidence", default=None, help="summaries of what did not pass go here")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    options = parser.parse_args()
    rows = [(each, name) for each in (*CONFIGURATIONS, *OURS) for name in each.scenarios]
    rows = [
        (each, name)
        for each, name in rows
        if any(fnmatch(f"{each.name}/{name}", pattern) for pattern in options.only)
    ]
    if options.list:
        for each, name in rows:
            print(f"{each.name}/{name}")
        return
    for each, name in rows:
        print(f"{each.name}/{name}", file=sys.stderr)
        row = play(each, name, options)
        with options.keep.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
    known = options.keep.read_bytes().splitlines() if options.keep.exists() else []
    print(table([msgspec.json.decode(line, type=Row) for line in known]))


if __name__ == "__main__":
    main()
