"""From evidence to lives: one for each message that fits the question."""

from collections import defaultdict
from typing import Final

from tandem.life.absence import absence
from tandem.life.delivering import Delivery, deliveries, no_readers
from tandem.life.evidence import Copy, Evidence, Gap
from tandem.life.records import Record, Role, records_of
from tandem.life.result import Finding, GroupState, Kind, Life, State, Why
from tandem.life.storing import (
    answer_gap,
    birth,
    contract,
    cuts,
    replication,
    storage,
)
from tandem.life.tracing import resent, traced
from tandem.life.waiting import delay, transaction, transaction_gaps
from tandem.life.words import count_words, list_words, time_words

LIVES_MAX: Final = 8
"""How many messages with one key are described: the newest."""

_AT_LAST: Final = 1 << 62


def why_of(evidence: Evidence) -> Why:
    """Return the lives of the messages that were asked for; without any, what that proves."""
    families: dict[str, list[Copy]] = defaultdict(list)
    for copy in evidence.copies:
        families[copy.family].append(copy)
    found = [records_of(copies, evidence.topics_known) for copies in families.values()]
    found.sort(key=lambda records: records[0].message.store_timestamp_ms)
    lives = [_life(records, evidence) for records in found if _is_asked_for(records, evidence)]
    return Why(
        message=evidence.message,
        topic=evidence.topic,
        is_found=bool(lives),
        lives=lives,
        absence=[] if lives else list(absence(evidence)),
        looked=evidence.looks,
        unknown=evidence.gaps,
        left_out=evidence.families_left_out,
        asked_at_ms=evidence.now_ms,
    )


def fits(copy: Copy, message: str) -> bool:
    """Whether a text names a record: its unique key, offset id, or one of its keys."""
    stored = copy.message
    ids = (copy.family, stored.offset_msg_id, stored.msg_id)
    return message in ids or message.upper() == stored.offset_msg_id or message in _keys(copy)


def _keys(copy: Copy) -> list[str]:
    return copy.message.keys.split(" ")


def _is_asked_for(records: list[Record], evidence: Evidence) -> bool:
    return any(fits(copy, evidence.message) for each in records for copy in each.copies)


def _life(records: list[Record], evidence: Evidence) -> Life:
    """Tell one life: events in the order of time, then what is so now."""
    groups = list(deliveries(records, evidence))
    now: list[Finding] = []
    current = _current(records)
    if current is not None:
        now += replication(current, evidence)
    findings = [
        *birth(records, evidence.now_ms),
        *transaction(records, evidence),
        *delay(records, evidence),
        *storage(records, evidence),
        *contract(records, evidence),
        *cuts(records),
        *resent(records, evidence),
        *(finding for group in groups for finding in group.findings),
        *no_readers(records, evidence),
        *now,
        *traced(records, evidence),
    ]
    findings.sort(key=lambda each: each.at_ms or _AT_LAST)
    gaps = [
        *([] if any(each.what == "sent" for each in evidence.traces) else [answer_gap()]),
        *transaction_gaps(records, evidence),
        *(gap for group in groups for gap in group.gaps),
        *_reader_gaps(records, groups, evidence),
    ]
    first = records[0].message
    named = next((each for each in records if each.role is Role.ORIGINAL), records[0])
    return Life(
        id=records[0].copies[0].family,
        topic=named.origin_topic or named.real_topic,
        keys=first.keys,
        tags=first.tags,
        summary=_summary(records, findings, [each.state for each in groups]),
        groups=[each.state for each in groups],
        findings=findings,
        unknown=gaps,
    )


def _current(records: list[Record]) -> Record | None:
    """Return the record that counts now: the last in its topic, else what stands for it."""
    kept = [each for each in records if each.is_in_log]
    originals = [each for each in kept if each.role is Role.ORIGINAL]
    return next(iter(reversed(originals or kept)), None)


def _reader_gaps(records: list[Record], groups: list[Delivery], evidence: Evidence) -> list[Gap]:
    topics = {each.message.topic for each in records if each.role is Role.ORIGINAL}
    unknown = sorted(topics - evidence.readers_known)
    if not unknown:
        return []
    return [
        Gap(
            what=f"which {'other ' if groups else ''}groups read topic {list_words(unknown)}",
            why="no broker that could say so was asked"
            if evidence.is_cluster
            else "no table of offsets was found in the directories",
        )
    ]


_ALSO: Final = (Kind.DUPLICATED, Kind.NOT_CONFIRMED, Kind.DAMAGED, Kind.OVERDUE, Kind.RESENT)

_STATES: Final = {
    State.CONSUMED: "consumed it",
    State.FILTERED: "passed over it: the filter leaves it out",
    State.NOT_YET: "not consumed it yet",
    State.NO_OFFSET: "consumed nothing of its queue",
    State.AGAIN: "not handled it, and will get it again",
    State.DEAD: "given it up: it is a dead letter",
    State.UNKNOWN: "perhaps had it: nobody says so",
}


def _state_words(group: GroupState) -> str:
    """Return what a group has done, beginning after "has" or "have"."""
    words = _STATES[group.state]
    if group.due_ms:
        words += f" at {time_words(group.due_ms)}"
    if group.state is State.NOT_YET and group.before_it > 0:
        words += f" ({count_words(group.before_it, 'message')} before it)"
    return words


def _summary(records: list[Record], findings: list[Finding], groups: list[GroupState]) -> list[str]:
    """Return what matters most: where it is, and what each group has made of it."""
    kinds = {each.kind: each for each in findings}
    lines = [_where(records, kinds)]
    lines += [kinds[kind].text for kind in _ALSO if kind in kinds]
    by_words: dict[str, list[str]] = defaultdict(list)
    for group in groups:
        by_words[_state_words(group)].append(group.group)
    for words, names in by_words.items():
        who = f"Group {names[0]} has" if len(names) == 1 else f"Groups {list_words(names)} have"
        lines.append(f"{who} {words}.")
    if Kind.NO_READERS in kinds:
        lines.append(kinds[Kind.NO_READERS].text)
    return lines


def _where(records: list[Record], kinds: dict[Kind, Finding]) -> str:
    current = _current(records)
    if current is None:
        gone = kinds.get(Kind.CUT) or kinds[Kind.SET_ASIDE]
        return gone.text
    if current.role is Role.ORIGINAL:
        message = current.message
        nodes = len(current.nodes)
        return (
            f"It is stored in topic {message.topic}, queue {message.queue_id}, since"
            f" {time_words(message.store_timestamp_ms)}, on"
            f" {list_words(current.nodes) if nodes <= 3 else f'{nodes} nodes'}."
        )
    for kind in (
        Kind.ROLLED_BACK,
        Kind.TRANSACTION_GIVEN_UP,
        Kind.TRANSACTION_OPEN,
        Kind.RECALLED,
    ):
        if kind in kinds:
            return kinds[kind].text
    if current.role in (Role.DELAYED, Role.TIMER) and Kind.DELAYED in kinds:
        due_ms = kinds[Kind.DELAYED].due_ms
        when = f" at {time_words(due_ms)}" if due_ms else ""
        return f"It is delayed: it is to be put into topic {current.real_topic}{when}."
    if current.role is Role.HALF:
        return f"It is the half of a transaction. {kinds[Kind.HALF].text}"
    return (
        f"The message itself is not in the logs that were looked at; what is left of it is in"
        f" {current.place}."
    )
