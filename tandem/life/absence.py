"""What it proves that a message was not found: by its id, and by what the logs hold."""

from collections.abc import Iterable, Iterator

from tandem.life.evidence import UNKNOWN, Copy, Evidence, Held, Look, NodeLog
from tandem.life.made_id import MadeKey, OffsetId, made_key_of, offset_id_of
from tandem.life.result import Finding, Kind
from tandem.life.words import count_words, list_words, time_words


def absence(evidence: Evidence) -> Iterator[Finding]:
    """Say what follows from a message not being where was looked."""
    logs = [log for log in evidence.nodes if not log.trouble]
    offset_id = offset_id_of(evidence.message)
    if offset_id is not None:
        yield from _by_place(offset_id, logs, evidence)
        return
    made = made_key_of(evidence.message, evidence.now_ms)
    if made is not None:
        yield from _by_time(made, logs)
    yield from _by_index(logs, evidence)
    yield from _not_shown(logs)
    yield from _switched(made.made_ms - made.zone_ms if made else 0, logs)


def _by_place(wanted: OffsetId, logs: list[NodeLog], evidence: Evidence) -> Iterator[Finding]:
    """Compare the offset in the id with what the logs hold."""
    yield from _other_broker(wanted, logs, evidence)
    brokers = {log.broker for log in evidence.nodes if _address(log) == wanted.host}
    logs = [log for log in logs if not brokers or log.broker in brokers]
    nodes = {log.node for log in logs}
    others = [copy for copy in evidence.others if copy.held is Held.LOG and copy.node in nodes]
    replaced = {copy.node for copy in others}
    if others:
        yield _replaced(wanted, others)
    for log in logs:
        if log.node not in replaced and log.start != UNKNOWN and log.end != UNKNOWN:
            yield _beside(wanted, log)
    yield from _not_shown(logs)
    yield from _switched(0, logs)


def _other_broker(wanted: OffsetId, logs: list[NodeLog], evidence: Evidence) -> Iterator[Finding]:
    if not evidence.is_cluster or any(_address(log) == wanted.host for log in evidence.nodes):
        return
    yield Finding(
        kind=Kind.OTHER_BROKER,
        text=f"The id names offset {wanted.offset} in the log of the group whose master was at"
        f" {wanted.host} then. No node that is registered now has that address:"
        f" {list_words(log.node for log in logs) or 'nobody'} may be of its group or not.",
        evidence=["the id", "what the name servers know"],
    )


def _address(log: NodeLog) -> str:
    """Return the address of the node that was asked: what its source begins with."""
    return log.source.partition(",")[0]


def _replaced(wanted: OffsetId, others: list[Copy]) -> Finding:
    there = others[0].message
    again = (
        "what the id names was cut off after a change of master"
        if str(there.store_host) != wanted.host
        else "that message is not the one, and the id was never given"
    )
    return Finding(
        kind=Kind.REPLACED,
        text=f"At offset {wanted.offset} {list_words(c.node for c in others)} now"
        f" {'has' if len(others) == 1 else 'have'} another message: {there.msg_id} of topic"
        f" {there.topic}, stored at {time_words(there.store_timestamp_ms)} by the master at"
        f" {there.store_host}. If they are of the group that the id is of, {again}.",
        evidence=[copy.source for copy in others],
        physical_offset=wanted.offset,
        is_concluded=True,
    )


def _beside(wanted: OffsetId, log: NodeLog) -> Finding:
    """Say where an offset is that a log has no record for."""
    if wanted.offset < log.start:
        since = f", stored at {time_words(log.first_store_ms)}" if log.first_store_ms else ""
        kind = Kind.EXPIRED
        text = f"The log of {log.node} begins at {log.start}{since}. The id names offset"
        text += (
            f" {wanted.offset}: what was there has been deleted, as too old or for want of room."
        )
    elif wanted.offset >= log.end:
        kind = Kind.PAST_END
        text = f"The log of {log.node} ends at {log.end}, before offset {wanted.offset} of the id:"
        text += " it does not have it yet, or what it had there was cut off."
    else:
        kind = Kind.NO_RECORD
        text = f"The log of {log.node} reaches from {log.start} to {log.end}, and no message"
        text += f" that is shown begins at offset {wanted.offset} of the id. If the id is of its"
        text += " group, what it names was cut off after a change of master, or is not confirmed."
    return Finding(
        kind=kind,
        text=text,
        evidence=["the id", log.source],
        node=log.node,
        physical_offset=wanted.offset,
    )


def _not_shown(logs: list[NodeLog]) -> Iterator[Finding]:
    """Say how much is not confirmed: nodes show nobody what is not."""
    for log in logs:
        if log.is_fenced and 0 <= log.confirm < log.end:
            yield Finding(
                kind=Kind.NOT_SHOWN,
                text=f"{log.node} has {count_words(log.end - log.confirm, 'byte')} in its log that"
                " are not confirmed, and shows them to nobody. It may be among them: ask again"
                f" when they are, or with --store.",
                evidence=[log.source],
                node=log.node,
            )


def _switched(since_ms: int, logs: list[NodeLog]) -> Iterator[Finding]:
    """Say when the master changed last: what was not confirmed then was cut off."""
    found = {
        (log.broker, log.switched_ms): log
        for log in logs
        if log.switched_ms and log.switched_ms >= since_ms
    }
    for (broker, at_ms), log in found.items():
        why = f" ({log.switch_reason})" if log.switch_reason else ""
        yield Finding(
            kind=Kind.SWITCHED,
            text=f"Group {broker} changed its master at {time_words(at_ms)}{why}. What was not"
            " confirmed then is cut off the old master's log when it comes back, and is kept in"
            " truncated/ of its directory: ask with --store.",
            evidence=[log.source],
            broker=broker,
            at_ms=at_ms,
        )


def _by_time(made: MadeKey, logs: list[NodeLog]) -> Iterator[Finding]:
    """Compare the time in a unique key with the times of the logs."""
    names = (
        f"By the id, process {made.process_id} at {made.address} made it at"
        f" {time_words(made.made_ms)} (by its clock, if its zone is UTC; or at that time of an"
        " earlier month)."
    )
    known = [log for log in logs if log.first_store_ms]
    if not known:
        return
    first = min(known, key=lambda log: log.first_store_ms)
    shown = ["the id", f"the first message of {first.node}: {first.source}"]
    last_ms = max(log.last_store_ms for log in known)
    if made.made_ms + made.zone_ms < first.first_store_ms:
        kind = Kind.EXPIRED
        text = f"{names} The oldest message that is left, on {first.node}, was stored at"
        text += f" {time_words(first.first_store_ms)}: if it was ever stored, it has been deleted."
    elif last_ms and made.made_ms - made.zone_ms > last_ms:
        kind = Kind.TOO_NEW
        text = f"{names} The newest message that was looked at was stored at"
        text += f" {time_words(last_ms)}: these logs have nothing of then."
    else:
        kind = Kind.NOT_STORED
        text = f"{names} The logs reach back to {time_words(first.first_store_ms)}. So it was never"
        text += " stored here, unless it is in another topic, is not confirmed yet, or was cut off."
    yield Finding(
        kind=kind,
        text=text,
        evidence=shown,
        at_ms=made.made_ms,
        is_concluded=kind is Kind.NOT_STORED,
    )


def _by_index(logs: list[NodeLog], evidence: Evidence) -> Iterator[Finding]:
    """Say which nodes cannot look up keys, and what was looked through where all can."""
    blind = [log for log in logs if log.is_indexed is False]
    if blind:
        yield Finding(
            kind=Kind.NOT_INDEXED,
            text=f"{list_words(log.node for log in blind)} "
            f"{'has' if len(blind) == 1 else 'have'} no index (messageIndexEnable is false):"
            " messages cannot be found there by a key. Ask by offset id, or with --store.",
            evidence=[f"the settings of {log.node}" for log in blind],
        )
    whole: list[Look] = [look for look in evidence.looks if look.is_complete and look.covers]
    if not blind and whole and not evidence.gaps:
        yield Finding(
            kind=Kind.NO_RECORD,
            text="No record that was looked at has this text as its unique key or as one of its"
            " keys. Upper and lower case count, and so does each character.",
            evidence=look_words(whole),
        )


def look_words(looks: Iterable[Look]) -> list[str]:
    """Return where was looked in words, places that were looked at in one way together."""
    places: dict[tuple[str, str, bool], list[str]] = {}
    for look in looks:
        places.setdefault((look.how, look.covers, look.is_complete), []).append(look.where)
    return [
        f"{', '.join(dict.fromkeys(found))}: {how}"
        + (f", {covers}" if covers else "")
        + ("" if is_complete else "; what is there may be missed")
        for (how, covers, is_complete), found in places.items()
    ]
