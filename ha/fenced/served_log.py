"""ServedLog: what this node tells and gives its peers of its log, to find and heal damage.

Nothing that is known to be bad is given. Past what is confirmed, a peer gets only what it has from
the same masters: see `history`. Bytes of a closed file are compared with its fingerprint first:
what turns out to be bad then is noted, and not given.
"""

from __future__ import annotations

from ha.errors import NotServed, NotServedError
from ha.fenced.history import epochs_within, history_of
from ha.fenced.log_check import begins_record, look_at
from ha.fenced.replica_parts import ReplicaParts
from tandem.wire.peer_log import (
    BAD_RANGES_MAX,
    BYTES_MAX,
    FileFingerprint,
    PeerLogPart,
)


class ServedLog:
    """The log of one replica, as its peers may ask for it."""

    def __init__(self, parts: ReplicaParts) -> None:
        self._parts = parts
        self._store = parts.store

    def part(self, start: int, end: int) -> PeerLogPart:
        """Return what is known of the log from `start` to `end`: one file, or less.

        Raises:
            NotServedError: that is more than one file.
        """
        store = self._store
        size = store.config.mapped_file_size_commit_log_bytes
        if not 0 <= start < end or end > start - start % size + size:
            raise NotServedError(
                f"{start} to {end} is not in one file of the log", NotServed.TWO_FILES
            )
        damage = store.commit_log.damage
        bad = [(max(b.start, start), min(b.end, end)) for b in damage.ranges]
        found = store.fingerprints.of(start - start % size)
        return PeerLogPart(
            node=self._parts.config.name,
            log_start=store.min_physical_offset,
            confirm=store.confirm_offset,
            log_end=store.max_physical_offset,
            epochs=epochs_within(self._parts.replica.epochs.entries, start, end),
            bad=tuple(each for each in bad if each[0] < each[1])[:BAD_RANGES_MAX],
            fingerprint=FileFingerprint(
                start=found.start,
                size=found.size,
                crcs=found.crcs,
                written_from=found.written_from,
            )
            if found is not None
            else None,
        )

    def data(self, start: int, end: int, history: str = "") -> bytes:
        """Return the bytes from `start` to `end`, of one file.

        `history` is that of this part of the asking peer's log, "" if it is not known.

        Raises:
            NotServedError: they are too many, not all there, not all confirmed and of another
                history, or bad.
        """
        store, name = self._store, self._parts.config.name
        if not 0 <= start < end or end - start > BYTES_MAX:
            raise NotServedError(
                f"{start} to {end} is nothing, or more than {BYTES_MAX} bytes", NotServed.TOO_MUCH
            )
        if start < store.min_physical_offset or end > store.max_physical_offset:
            raise NotServedError(
                f"the log of {name} is from {store.min_physical_offset} to"
                f" {store.max_physical_offset}",
                NotServed.NOT_THERE,
            )
        if end > store.confirm_offset and not self._is_of(history, start, end):
            raise NotServedError(
                f"{name} has confirmed {store.min_physical_offset} to {store.confirm_offset} only,"
                " and may have the rest from other masters",
                NotServed.NOT_CONFIRMED,
            )
        look_at(store, start, end)
        bad = store.commit_log.damage.within(start, end)
        if bad is not None:
            raise NotServedError(
                f"the log of {name} is bad itself from {bad.start} to {bad.end}: {bad.reason}",
                NotServed.DAMAGED,
            )
        with store.commit_log.read(start, end - start) as view:
            data = bytes(view)
        if len(data) != end - start:
            raise NotServedError(
                f"{start} to {end} is not in one file of the log of {name}", NotServed.TWO_FILES
            )
        return data

    def _is_of(self, history: str, start: int, end: int) -> bool:
        own = epochs_within(self._parts.replica.epochs.entries, start, end)
        return bool(history) and history == history_of(own, start, end)

    def doubted(self, start: int, end: int) -> None:
        """Look at a part of which a peer says that it is bad: a record is to begin at `start`.

        A fingerprint decides. Where there is none, there has to be a sound record. If that finds
        nothing, the whole file is looked at, and compared with others.
        """
        store = self._store
        start, end = max(start, store.min_physical_offset), min(end, store.max_physical_offset)
        if end - start > BYTES_MAX:
            end = start + BYTES_MAX
        if start >= end:
            return
        look_at(store, start, end)
        size = store.config.mapped_file_size_commit_log_bytes
        if store.fingerprints.of(start - start % size) is None and not begins_record(store, start):
            store.commit_log.damage.note(start, end, "a follower was sent no sound record here")
        if store.commit_log.damage.within(start, end) is None:
            self._parts.standing.was_doubted(start, end)
