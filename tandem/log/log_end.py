"""Where a log ends, judged from what was found in all its pieces.

The rule is that of `tandem.wire.log_end`: the log ends at the first place without a sound record
after which nothing has to be kept. A sound record has to be kept if the checkpoint says that it was
on disk before the last stop, or, after a clean stop, if a queue knows it; then the place before it
is damage. What is not known after a clean stop (no checkpoint) is kept.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tandem.log.piece_check import BreakFacts, PieceCheck, Sound
from tandem.log.store_directory import StoreDirectory
from tandem.wire.log_end import was_on_disk
from tandem.wire.record_rule import ScanStop


class LogEnd(msgspec.Struct, frozen=True):
    """The verdict.

    `offset` is the end of the log, `last_offset` where its last record starts (-1: there is none).
    `tail` is the place where it ends, None if that is the end of the files; `is_bare` says that
    nothing but zeros follows. `damages` are the places before it. `units_past` is how many queue
    units lead to the end or past it, as far as no sound record is there, `entries_past` the
    same of index entries.
    """

    offset: int
    last_offset: int
    newest_ms: int
    tail: BreakFacts | None
    damages: list[BreakFacts]
    units_past: int
    entries_past: int
    is_bare: bool


def find_log_end(store: StoreDirectory, checks: Sequence[PieceCheck], ahead_count: int) -> LogEnd:
    """Judge the breaks of all pieces in order; `ahead_count` units lead past all files."""
    damages: list[BreakFacts] = []
    last_offset = -1
    units_past = ahead_count
    entries_past = 0
    tail: BreakFacts | None = None
    is_bare = True
    for place, before, after in _places(checks):
        if tail is None and not _has_to_be_kept(store, after):
            tail, last_offset = place, before
            is_bare = after is None
        if tail is None:
            damages.append(place)
        else:
            units_past += place.unit_count
            entries_past += place.entry_count
            is_bare &= place.stop is ScanStop.ZEROS
    end = store.commit_log[-1].end_offset if store.commit_log else store.log_start
    if tail is None:
        last_offset = max((check.last_offset for check in checks), default=-1)
    return LogEnd(
        offset=end if tail is None else tail.offset,
        last_offset=last_offset,
        newest_ms=max((check.newest_ms for check in checks), default=0),
        tail=tail,
        damages=damages,
        units_past=units_past,
        entries_past=entries_past,
        is_bare=is_bare,
    )


def _places(
    checks: Sequence[PieceCheck],
) -> Iterator[tuple[BreakFacts, int, Sound | None]]:
    """Yield each break with the last sound record before it and the first one after it."""
    later: list[Sound | None] = [None]
    for check in reversed(checks):
        later.append(check.first or later[-1])
    later.reverse()  # later[n]: the first sound record in piece n or after it
    last = -1
    for number, check in enumerate(checks):
        for place in check.breaks:
            before = place.last_offset if place.last_offset >= 0 else last
            yield place, before, place.after or later[number + 1]
        last = check.last_offset if check.last_offset >= 0 else last


def _has_to_be_kept(store: StoreDirectory, after: Sound | None) -> bool:
    if after is None:
        return False
    known_ms = store.checkpoint.physic_msg_timestamp_ms if store.checkpoint else 0
    if not store.is_settled:
        return was_on_disk(after.store_timestamp_ms, known_ms)
    return after.has_unit or not known_ms or after.store_timestamp_ms <= known_ms
