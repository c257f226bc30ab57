"""What both checkers ask of sends and of a log. Each says itself what it promises, and to whom."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.sim.engine.history import Contract, EmptyPull, Outcome, Send
from tests.sim.engine.walked_log import LogRecord


def by_key(records: Iterable[LogRecord]) -> dict[str, list[LogRecord]]:
    """Return the places of each message."""
    places: dict[str, list[LogRecord]] = defaultdict(list)
    for record in records:
        places[record.key].append(record)
    return places


def misplaced(send: Send, places: list[LogRecord]) -> str:
    """Return what the producer was told and what is, if these differ; empty if they do not."""
    told = place_of(send)
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
    """Yield what was answered before another was sent, but is stored after it in their queue.

    Every copy of a message was stored after its producer began to send it. So whatever a producer
    does that sends again, nothing it began after an answer comes before what was answered.
    """
    by_send = {send.key: send for send in sends}
    latest: dict[int, Send] = {}
    for record in records:
        send = by_send.get(record.key)
        if send is None:
            continue
        before = latest.get(record.queue_id)
        is_late = before is not None and send.answered_at < before.invoked_at
        if before is not None and is_late and _is_what_was_answered(send, record):
            yield (
                f"queue {record.queue_id}: {send.key} was answered before {before.key} was sent,"
                " but is stored after it"
            )
        if before is None or send.invoked_at > before.invoked_at:
            latest[record.queue_id] = send


def _is_what_was_answered(send: Send, record: LogRecord) -> bool:
    """Whether a record is the copy of a message that its answer was about.

    Of one that was sent several times, only a promise says that this copy stayed where it was: a
    late one may have come to the same place in the log of another master.
    """
    if send.attempts_max == 1:
        return True
    if send.outcome is not Outcome.OK or send.contract is Contract.ASYNC:
        return False
    return (record.queue_id, record.queue_offset, record.physical_offset) == place_of(send)


def place_of(send: Send) -> tuple[int, int, int]:
    """Return queue, queue offset and physical offset as the producer was told."""
    return send.queue_id, send.queue_offset, send.physical_offset


def stale(sends: Iterable[Send], pulls: Iterable[EmptyPull]) -> Iterator[str]:
    """Yield what was promised before a reader asked the master, and was not there for it."""
    promised: dict[int, list[Send]] = defaultdict(list)
    for send in sends:
        if send.outcome is Outcome.OK and send.contract is not Contract.ASYNC:
            promised[send.queue_id].append(send)
    for pull in pulls:
        for send in promised[pull.queue_id]:
            if send.queue_offset >= pull.queue_offset and send.answered_at < pull.asked_at:
                yield (
                    f"{pull.node} at {pull.answered_at:.6f}: nothing at {pull.queue_offset} of"
                    f" queue {pull.queue_id}, but {send.key} is at {send.queue_offset}, answered"
                    f" at {send.answered_at:.6f}"
                )
                break
