"""What both checkers ask of sends and of a log. Each says itself what it promises, and to whom."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.sim.engine.history import Outcome, Send
from tests.sim.engine.walked_log import LogRecord


def by_key(records: Iterable[LogRecord]) -> dict[str, list[LogRecord]]:
    """Return the places of each message."""
    places: dict[str, list[LogRecord]] = defaultdict(list)
    for record in records:
        places[record.key].append(record)
    return places


def misplaced(send: Send, places: list[LogRecord]) -> str:
    """Return what the producer was told and what is, if these differ; empty if they do not."""
    told = (send.queue_id, send.queue_offset, send.physical_offset)
    if any(told == (at.queue_id, at.queue_offset, at.physical_offset) for at in places):
        return ""
    return f"{send.key}: told {told}, found {places[0]}"


def duplicated(sends: Iterable[Send], places: dict[str, list[LogRecord]]) -> Iterator[str]:
    """Yield what is stored more often than it was sent."""
    for send in sends:
        found = places.get(send.key, [])
        if len(found) > send.attempts_max:
            at = ", ".join(str(place.physical_offset) for place in found)
            yield f"{send.key}, {send.attempts_max} tries: at {at}"


def phantoms(sends: Iterable[Send], records: Iterable[LogRecord]) -> Iterator[str]:
    """Yield what is stored, but was never sent, was sent with other bytes, or was refused."""
    by_send = {send.key: send for send in sends}
    for record in records:
        send = by_send.get(record.key)
        where = f"offset {record.physical_offset}: {record.key!r}"
        if send is None:
            yield f"{where} was never sent"
        elif send.body_crc != record.body_crc:
            yield f"{where} was sent with another body"
        elif send.outcome is Outcome.REFUSED:
            yield f"{where} was refused, but is stored: {send.text}"


def reordered(sends: Iterable[Send], records: Iterable[LogRecord]) -> Iterator[str]:
    """Yield what was answered before another was sent, but lies after it in their queue."""
    by_send = {send.key: send for send in sends if send.attempts_max == 1}
    latest: dict[int, Send] = {}
    for record in records:
        send = by_send.get(record.key)
        if send is None:
            continue
        before = latest.get(record.queue_id)
        if before is not None and send.answered_at < before.invoked_at:
            yield (
                f"queue {record.queue_id}: {send.key} was answered before {before.key} was sent,"
                " but is stored after it"
            )
        if before is None or send.invoked_at > before.invoked_at:
            latest[record.queue_id] = send
