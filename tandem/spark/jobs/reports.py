"""How a job tells what it does: words for people while it runs, and lines for the log."""

import logging
from collections.abc import Callable
from typing import TypeAlias

import msgspec

OnProgress: TypeAlias = Callable[[str], None]
"""Called with what has been done so far: "3 of 12 log files"."""

logger = logging.getLogger("tandem.spark.jobs")


class JobError(msgspec.Struct, frozen=True):
    """Why a task could not do its part; an error as a value, so that what others did counts."""

    text: str


def silent(_words: str) -> None:
    """Tell nobody."""


def log_metrics(job: str, event: str, **metrics: float | str) -> None:
    """Log what was done, as `name=value` pairs that a program can read."""
    pairs = " ".join(f"{name}={value}" for name, value in metrics.items())
    logger.info("%s: %s %s", job, event, pairs)
