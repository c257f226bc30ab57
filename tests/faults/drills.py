"""Drills of a few seconds on addresses of their own, and what becomes of them."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.drill import report
from tandem.drill.command import run_drill
from tandem.drill.options import DrillOptions
from tandem.drill.outcomes import EXIT_BROKEN, EXIT_INCONCLUSIVE
from tandem.testing import Kind, write_cluster_file
from tests.support.processes import TANDEM

RATE_PER_SECOND: Final = 150.0
ATTEMPTS: Final = 3


def a_drill(
    directory: Path,
    *scenarios: str,
    kind: Kind = "classic",
    seconds: float = 4.0,
    spark: bool = False,
    spark_stream: bool = False,
) -> DrillOptions:
    """A drill of three nodes; without scenarios it plays those that it plays by itself."""
    return DrillOptions(
        config=write_cluster_file(directory, 2, {}, kind=kind),
        out=directory / "report",
        scenarios=scenarios,
        duration_seconds=seconds,
        rate_per_second=RATE_PER_SECOND,
        spark=spark,
        spark_stream=spark_stream,
    )


def status_of(options: DrillOptions) -> int:
    """Run a drill, and again if it says that the machine was slow, and breaks no promise."""
    for _ in range(ATTEMPTS - 1):
        status = run_drill(options)
        if not _may_be_the_machine(status, options):
            return status
        shutil.rmtree(options.out)
    return run_drill(options)


def _may_be_the_machine(status: int, options: DrillOptions) -> bool:
    if status != EXIT_BROKEN:
        return status == EXIT_INCONCLUSIVE
    summary = summary_of(options)
    return bool(summary["late_seconds_max"] > 0 and summary["promises_broken"] == 0)


def command_of(options: DrillOptions) -> list[str]:
    """The command line of a drill."""
    line = [*TANDEM, "drill", "--config", str(options.config), "--out", str(options.out)]
    line += ["--rate", f"{options.rate_per_second:g}"]
    line += ["--duration", str(options.duration_seconds), *options.scenarios]
    return [*line, "--spark"] if options.spark else line


def summary_of(options: DrillOptions) -> dict[str, Any]:
    """The facts of a report."""
    found: dict[str, Any] = msgspec.json.decode((options.out / "summary.json").read_bytes())
    return found


def unmet(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """What was expected and not seen."""
    return [each for each in summary["expectations"] if not each["held"]]


def change_a_byte(store: Path) -> None:
    """What a disk should never do: another byte in the first file of a log."""
    log = min((store / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(200)
        byte = file.read(1)
        file.seek(200)
        file.write(bytes([byte[0] ^ 0xFF]))


def claim_one_more_sync_send(ledger: Path) -> None:
    """Let the ledger say that one more message was acknowledged."""
    table = pq.read_table(ledger)
    row = next(row for row in table.to_pylist() if row["status"] == "SEND_OK")
    row |= {"send_id": "sync-1-9999999", "mode": "sync", "sequence": 9_999_999}
    pq.write_table(pa.concat_tables([table, pa.Table.from_pylist([row], table.schema)]), ledger)


def draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the picture of a report out: it takes a second or two, and is not what is looked at."""
    monkeypatch.setattr(report, "story_svg", lambda *_, **__: "<svg></svg>")
    monkeypatch.setattr(report, "details_svg", lambda *_: "<svg></svg>")


@contextmanager
def signals_as_before() -> Iterator[None]:
    """A drill in this process hears signals, and the tests after it do not."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
