"""What an audit is doing, in words for the person who waits for it."""

from collections.abc import Callable, Mapping

from tandem.spark.audit.log_compare import Log

OnStage = Callable[[str], None]
"""Is called when a stage of an audit begins, in the thread of the audit."""


def no_stage(_: str) -> None:
    """Say nothing."""


def comparing(logs: Mapping[str, Log], master: str) -> str:
    """The stage in which the other logs are compared with the master's."""
    others = [log for node, log in logs.items() if node != master]
    size = _size(sum(log.end - log.start for log in others))
    count = "1 log" if len(others) == 1 else f"{len(others)} logs"
    return f"comparing {count} of {size} with that of {master}, byte by byte"


def reading(logs: Mapping[str, Log], master: str) -> str:
    """The stage in which the records of the master's log are read."""
    return f"reading the log of {master}, {_size(logs[master].end - logs[master].start)}"


def joining(sends: int, records: int) -> str:
    """The stage in which each send is looked for in the log."""
    return f"joining the ledger of {sends:,} sends with {records:,} records"


def _size(count: int) -> str:
    return f"{count / 1024 / 1024:.1f} MiB"
