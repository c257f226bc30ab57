"""Messages that an archive once went past and has not: what lies between two of its units.

A unit that was removed, log files that were deleted before they were archived, and a topic that
was left out for a while (`exclude_topics`) leave holes. The offsets of a queue that are missing
inside of a unit are none: the log has gaps of its own, as after a batch.
"""

import itertools
import logging
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from tandem.spark.archive.manifest import Manifest, Unit

_log = logging.getLogger(__name__)

SHOWN_MAX: Final = 5
"""How many holes a line names."""


class Hole(msgspec.Struct, frozen=True):
    """Offsets [first, end) of a queue, stored between two times in ms, both met."""

    topic: str
    group: str
    queue_id: int
    first: int
    end: int
    since_ms: int
    until_ms: int
    was_left_out: bool
    """On purpose, by `exclude_topics`; else the bytes are not in the archive."""

    @property
    def reason(self) -> str:
        """Why nobody can read them, and what helps."""
        if self.was_left_out:
            return "the archive was told to leave the topic out there (exclude_topics)"
        return (
            "the archive has no unit of that piece of the log; put its file in _tandem/units back,"
            " or run `tandem pipeline archive` while a store has those log files"
        )


def holes_of(manifest: Manifest, topics: Collection[str] | None = None) -> list[Hole]:
    """Return the holes of the topics, of all if none are named, in the order of the log."""
    groups = sorted({unit.group for unit in manifest.units})
    return [hole for group in groups for hole in _holes(manifest.of(group), topics)]


def warn_of_holes(manifest: Manifest, topics: Collection[str] | None = None) -> None:
    """Log what a job that reads these topics does not see, in one line."""
    holes = holes_of(manifest, topics)
    if not holes:
        return
    shown = "; ".join(
        f"{hole.topic} {hole.group} {hole.queue_id} [{hole.first}, {hole.end}): {hole.reason}"
        for hole in holes[:SHOWN_MAX]
    )
    more = f" and {len(holes) - SHOWN_MAX} more" if len(holes) > SHOWN_MAX else ""
    _log.warning(
        "%s: messages are missing that were stored between others of the archive: %s%s",
        *(manifest.archive, shown, more),
    )


def _holes(units: list[Unit], topics: Collection[str] | None) -> Iterator[Hole]:
    seen: dict[tuple[str, int], tuple[int, int, int]] = {}  # end, its time, which unit
    for number, unit in enumerate(units):
        for file in unit.in_log_order():
            if topics is not None and file.topic not in topics:
                continue
            for queue in file.queues:
                key = (file.topic, queue.queue_id)
                end, since_ms, before = seen.get(key, (queue.first, 0, number))
                if queue.first > end:
                    between = units[before : number + 1]
                    is_cut = any(
                        one.end < other.first for one, other in itertools.pairwise(between)
                    )
                    was_left_out = any(file.topic in one.excluded_topics for one in between[1:-1])
                    if is_cut or was_left_out:
                        yield Hole(
                            *(file.topic, unit.group, queue.queue_id, end, queue.first),
                            *(since_ms, file.first_store_ms),
                            was_left_out=not is_cut,
                        )
                # Where offsets are lower than before, the queue was made anew.
                seen[key] = (queue.end, file.last_store_ms, number)
