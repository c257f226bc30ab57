"""The options that the commands of `tandem log` share, each stated once, and what they come to."""

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.plain_text import one_line

if TYPE_CHECKING:
    from tandem.log import RecordFilter
    from tandem.log.index_file import IndexSettings


class BodyFormat(enum.StrEnum):
    """How bodies are printed."""

    TEXT = "text"
    HEX = "hex"
    NONE = "none"


StoreArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A store root, or only its commitlog.")
]
CommitLogOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--commit-log",
        metavar="DIR",
        help="Where the log is, if not in DIR/commitlog. Repeatable: a log in several places.",
        show_default=False,
    ),
]
BodyOption = Annotated[BodyFormat, typer.Option(help="How bodies are shown.")]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="Only this topic. Repeatable.")
]
QueueOption = Annotated[
    list[int] | None, typer.Option("--queue", "-q", help="Only this queue id. Repeatable.")
]
QueueOffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "--queue-offset",
        metavar="N|START:END",
        help="Queue offsets; END is not included.",
    ),
]
PhysicalOption = Annotated[
    str | None,
    typer.Option(metavar="N|START:END", help="Physical offsets of records; END is not included."),
]
KeyOption = Annotated[str | None, typer.Option(help="Only with this key (KEYS or UNIQ_KEY).")]
TagsOption = Annotated[str, typer.Option(help="Only with these tags: 'a || b'.")]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Stored at or after: ISO 8601 (UTC) or ms.")
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Stored before: ISO 8601 (UTC) or ms.")
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")]
ScanOption = Annotated[
    bool, typer.Option("--scan", help="Look for --key in the log, not in index files.")
]
FromOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="OTHER_DIRECTORY",
        help="Heal the log from this copy of it: the directory of a slave or replica.",
    ),
]
WithOlderOption = Annotated[
    bool,
    typer.Option(
        "--with-older", help="With --from: copy the files before the first one here as well."
    ),
]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Processes; by default one a core.")
]
LevelsOption = Annotated[
    str | None,
    typer.Option(metavar="LEVELS", help="messageDelayLevel of the store, if not the default."),
]
SlotsOption = Annotated[
    int | None,
    typer.Option(
        "--max-hash-slot-num", min=1, help="Slots of an index file, if they cannot be found out."
    ),
]
UnitsOption = Annotated[
    int | None,
    typer.Option("--max-index-num", min=1, help="Units of an index file; with the one before."),
]


def record_filter(
    *,
    topic: list[str] | None = None,
    queue: list[int] | None = None,
    offset: str | None = None,
    physical: str | None = None,
    key: str | None = None,
    tags: str = "*",
    since: str | None = None,
    until: str | None = None,
) -> "RecordFilter":
    """Return which records the options choose.

    Raises:
        BadRequestError: a range or a time cannot be read.
    """
    from tandem.log import RecordFilter
    from tandem.log.record_filter import parse_range, parse_time_ms

    return RecordFilter(
        topics=frozenset(topic) if topic else None,
        queue_ids=frozenset(queue) if queue else None,
        queue_offsets=parse_range(offset, "--offset"),
        physical_offsets=parse_range(physical, "--physical"),
        key=key,
        tags=None if tags.strip() in ("", "*") else frozenset(_split_tags(tags)),
        since_ms=parse_time_ms(since, "--since"),
        until_ms=parse_time_ms(until, "--until"),
    )


def _split_tags(tags: str) -> Iterator[str]:
    yield from (piece.strip() for piece in tags.split("||") if piece.strip())


def index_settings(slots: int | None, units: int | None) -> "IndexSettings | None":
    """Return the shape of index files that was given; None if it is to be found out.

    Raises:
        typer.BadParameter: one number without the other.
    """
    from tandem.log.index_file import IndexSettings

    if slots is None and units is None:
        return None
    if slots is None or units is None:
        raise typer.BadParameter("give both, or none", param_hint="--max-hash-slot-num")
    return IndexSettings(slots, units)


def jobs_or_cores(jobs: int | None) -> int:
    """Return how many processes to use."""
    from tandem.log.workers import usable_cores

    return jobs or usable_cores()


def delay_levels(levels: str | None) -> str:
    """Return messageDelayLevel of the store: as given, else RocketMQ's.

    Raises:
        typer.BadParameter: they are no delays.
    """
    from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL, DelayLevels

    if levels is None:
        return MESSAGE_DELAY_LEVEL
    try:
        DelayLevels(levels)
    except ValueError as error:
        raise typer.BadParameter(
            one_line(str(error)), param_hint="--message-delay-level"
        ) from error
    return levels
