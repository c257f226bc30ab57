"""Where a message is stored, since when, on which nodes, and what its producer was promised."""

from collections.abc import Iterable, Iterator
from typing import Final

from tandem.life.evidence import UNKNOWN, Copy, Epoch, Evidence, Gap, Held, NodeLog, Replica
from tandem.life.made_id import made_key_of
from tandem.life.records import Record, Role, about
from tandem.life.result import Finding, Kind
from tandem.life.words import count_words, list_words, span_words
from tandem.wire.message_properties import (
    ACK_FLUSHED,
    PROPERTY_ACK,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
)

HAS: Final = "has"
IS: Final = "is"
CANNOT: Final = "could"
_PLURALS: Final = {HAS: "have", IS: "are", CANNOT: CANNOT}

CLOCKS_DIFFER_MS: Final = 60_000
"""A message that was stored so much later than it was made is worth a word."""


def birth(records: list[Record], now_ms: int) -> Iterator[Finding]:
    """Say who made the message."""
    first = records[0]
    message = first.message
    key = message.properties.get(PROPERTY_UNIQUE_KEY, "")
    made = made_key_of(key, now_ms)
    text = f"A producer at {message.born_host} made it"
    if made is not None and abs(made.made_ms - message.born_timestamp_ms) <= made.zone_ms:
        text += f"; its id names the process {made.process_id} at {made.address}"
    late_ms = message.store_timestamp_ms - message.born_timestamp_ms
    text += "."
    if abs(late_ms) > CLOCKS_DIFFER_MS and first.role in (Role.ORIGINAL, Role.HALF):
        how = "later" if late_ms > 0 else "earlier"
        text += (
            f" It was stored {span_words(abs(late_ms))} {how}: it was on its way so long, or the"
            " clocks of producer and broker differ."
        )
    yield Finding(
        kind=Kind.BORN,
        text=text,
        at_ms=message.born_timestamp_ms,
        evidence=[f"BORNTIMESTAMP and BORNHOST of the record; {first.sources[0]}"],
    )


def storage(records: list[Record], evidence: Evidence) -> Iterator[Finding]:
    """Say where each record in its own topic is, and whether it is there more than once."""
    originals = [each for each in records if each.role is Role.ORIGINAL and each.is_in_log]
    for record in originals:
        yield stored(record, evidence, "It was stored")
    for record in records:
        if not all(copy.is_sound for copy in record.copies):
            bad = [copy for copy in record.copies if not copy.is_sound]
            yield about(
                record,
                Kind.DAMAGED,
                text=f"The body of the copy on {list_words(c.node for c in bad)} is not what was"
                " stored: its checksum does not fit.",
                evidence=[copy.source for copy in bad],
            )
    if len(originals) > 1:
        last = originals[-1]
        yield about(
            last,
            Kind.DUPLICATED,
            text=f"It is stored {count_words(len(originals), 'time')} in its topic, with the same"
            " unique key: it was sent or delivered again. Consumers get each of them.",
            at_ms=last.message.store_timestamp_ms,
            evidence=[each.sources[0] for each in originals],
        )


def stored(record: Record, evidence: Evidence, words: str) -> Finding:
    """Say that a record was stored, by which master, and where."""
    message = record.message
    log = _log_of(record, evidence)
    text = (
        f"{words}{f' by {record.broker}' if record.broker else ''}: {record.place}; at"
        f" {message.physical_offset} of the log, {count_words(message.store_size, 'byte')}."
    )
    shown = record.sources[:1]
    epoch = _epoch_of(record, log)
    if epoch is not None and log is not None:
        text += f" Its master, at {message.store_host}, wrote it in epoch {epoch.epoch}"
        text += f" (from {epoch.start} on)."
        shown.append(f"the list of epochs of {log.node}")
    else:
        text += f" The master then was at {message.store_host}."
    return about(
        record,
        Kind.STORED,
        text=text,
        at_ms=message.store_timestamp_ms,
        evidence=shown,
    )


def logs_of(record: Record, evidence: Evidence) -> list[NodeLog]:
    """Return the logs of the nodes that ought to have a record: those of its group.

    Of directories nobody knows which are of one group; those that have the record are.
    """
    if record.broker:
        return [log for log in evidence.nodes if log.broker == record.broker]
    names = {copy.node for copy in record.copies}
    return [log for log in evidence.nodes if log.node in names]


def _log_of(record: Record, evidence: Evidence) -> NodeLog | None:
    logs = [log for log in logs_of(record, evidence) if log.epochs]
    holders = [log for log in logs if log.node in record.nodes]
    return next(iter(holders or logs), None)


def _epoch_of(record: Record, log: NodeLog | None) -> Epoch | None:
    if log is None:
        return None
    before = [each for each in log.epochs if each.start <= record.message.physical_offset]
    return max(before, key=lambda each: each.start, default=None)


def replication(record: Record, evidence: Evidence) -> Iterator[Finding]:
    """Say which nodes have a record in their logs, and whether it is confirmed."""
    logs = logs_of(record, evidence)
    seen = {log.node for log in logs}
    lines: dict[tuple[str, str], list[str]] = {}
    for log in logs:
        lines.setdefault(_reach_words(log, record), []).append(_titled(log))
    for node in record.nodes:
        if node not in seen:
            lines.setdefault((HAS, "it in the log"), []).append(node)
    words = [
        f"{list_words(names)} {_PLURALS[verb] if len(names) > 1 else verb} {rest}."
        for (verb, rest), names in lines.items()
    ]
    shown = [f"{log.source}" for log in logs if not log.trouble]
    yield about(
        record,
        Kind.REPLICATED,
        " ".join([*words, *_unasked(logs, record.end)]),
        [*record.sources, *shown],
    )
    yield from _confirmed(record, [log for log in logs if log.is_fenced and log.confirm >= 0])


def _confirmed(record: Record, logs: list[NodeLog]) -> Iterator[Finding]:
    if not logs:
        return
    best = max(logs, key=lambda log: log.confirm)
    shown = [f"confirm offset of {best.node}: {best.source}"]
    if best.confirm >= record.end:
        members = f" ({list_words(best.in_sync)})" if best.in_sync else ""
        yield about(
            record,
            Kind.CONFIRMED,
            f"It is confirmed: every in-sync replica{members} has it, and no change of master"
            f" takes it back. The log is confirmed up to {best.confirm}.",
            shown,
        )
        return
    yield about(
        record,
        Kind.NOT_CONFIRMED,
        "It is not confirmed: not every in-sync replica has it, so no consumer gets it, and a"
        f" change of master may cut it off. The log is confirmed up to {best.confirm}, and the"
        f" message ends at {record.end}.",
        shown,
    )


def _titled(log: NodeLog) -> str:
    return f"{log.node} ({log.role.lower()})" if log.role else log.node


def _reach_words(log: NodeLog, record: Record) -> tuple[str, str]:
    """Return what one node's log says of a record: a verb, and what comes after it."""
    place = record.message.physical_offset
    if log.trouble:
        found = CANNOT, f"not be asked: {log.trouble}"
    elif log.node in record.nodes:
        found = HAS, f"it in the log{_disk_words(log, record)}"
    elif UNKNOWN != log.start > place:
        found = HAS, f"deleted it: the log begins at {log.start}"
    elif UNKNOWN != log.end <= place:
        found = IS, f"without it: the log ends at {log.end}"
    else:
        found = HAS, f"not shown it, though the log reaches from {log.start} to {log.end}"
    return found


def _disk_words(log: NodeLog, record: Record) -> str:
    if log.flushed == UNKNOWN:
        return ""
    if log.flushed < record.end:
        return f", not yet synced to the disk (synced up to {log.flushed})"
    return ", on disk"


def _unasked(logs: Iterable[NodeLog], end: int) -> list[str]:
    """What masters know of nodes that were not asked themselves."""
    logs = list(logs)
    asked = {log.node for log in logs if not log.trouble}
    known: dict[str, Replica] = {}
    for log in logs:
        for replica in log.replicas:
            if replica.name not in asked and replica.written > UNKNOWN:
                known[replica.name] = replica
    return [
        f"{name} was not asked; its master knows that it {_reach(replica, end)}."
        for name, replica in sorted(known.items())
    ]


def _reach(replica: Replica, end: int) -> str:
    if replica.flushed >= end:
        return "has it on disk"
    if replica.written >= end:
        return "has it"
    return f"had the log up to {replica.written}, which is before its end"


def contract(records: list[Record], evidence: Evidence) -> Iterator[Finding]:
    """Say what SEND_OK meant for it, by the properties that its producer gave it."""
    # A broker that delivers, retries or commits sets WAIT itself: the first record is the sender's.
    first = next((each for each in records if each.is_in_log), records[0])
    if first.role not in (Role.ORIGINAL, Role.HALF, Role.DELAYED, Role.TIMER) or first.group:
        return
    properties = first.message.properties
    logs = logs_of(first, evidence)
    is_fenced = any(log.is_fenced or log.epochs for log in logs)
    if properties.get(PROPERTY_WAIT_STORE_MSG_OK, "").lower() == "false":
        text = "It was sent as async: SEND_OK means that its master has it, and nobody else."
        shown = "WAIT=false in its properties"
    elif properties.get(PROPERTY_ACK) == ACK_FLUSHED:
        text = "It was sent as replicated and flushed: SEND_OK means that every in-sync replica"
        text += " has synced it."
        shown = f"{PROPERTY_ACK}={ACK_FLUSHED} in its properties"
    elif is_fenced:
        text = _replicated_words(logs)
        shown = "neither WAIT=false nor an acknowledgement of its own in its properties"
    else:
        set_up = next((log.contract for log in logs if log.contract), "")
        text = "It was sent with WAIT as usual: SEND_OK means what the settings of its master say"
        text += f" ({set_up})." if set_up else "."
        shown = "no WAIT=false in its properties"
    yield about(
        first,
        Kind.CONTRACT,
        text=text,
        evidence=[shown],
        at_ms=first.message.store_timestamp_ms,
    )


def _replicated_words(logs: Iterable[NodeLog]) -> str:
    log = next((each for each in logs if each.min_isr > 0), None)
    least = f", at least {log.min_isr}," if log else ""
    level = f" has it {log.ack_level}" if log and log.ack_level else " has it"
    return f"It was sent as replicated: SEND_OK means that every in-sync replica{least}{level}."


def answer_gap() -> Gap:
    """What no node keeps."""
    return Gap(
        what="what its producer was answered",
        why="no record of the log says so",
        remedy="the producer knows: the SendResult, or its log",
    )


def cuts(records: list[Record]) -> Iterator[Finding]:
    """Say what was cut off a log, or set aside with it."""
    for record in records:
        for copy in record.copies:
            if copy.held is not Held.LOG:
                yield _cut(record, copy)


def _cut(record: Record, copy: Copy) -> Finding:
    why = f" The node's note says: {copy.why_held.rstrip('.')}." if copy.why_held else ""
    if copy.held is Held.CUT:
        kind = Kind.CUT
        text = f"It was cut off the log of {copy.node} after a change of master"
    else:
        kind = Kind.SET_ASIDE
        text = f"{copy.node} has set aside a store that has it"
    if record.is_in_log:
        text += f"; {list_words(record.nodes)} still {'has' if len(record.nodes) == 1 else 'have'}"
        text += " the same record in the log."
    else:
        text += ": no log that was looked at has this record any more. Consumers do not get it."
    return about(record, kind, text + why, [copy.source], node=copy.node)
