"""What consumers were promised, judged line by line as the ledger grows. Pure.

    plain, delayed, timed   each acknowledged message is handled by each group, sooner or later
    transaction             one that was committed is handled, any other one never; a question comes
                            for each that was left open
    retried                 it is handled when it has failed as often as it has to; one that always
                            fails is a dead letter at last

    in a queue              a group's offset passes nothing that the group has not handled; what was
                            read at a place stays there; a group in order hands out nothing before
                            all that is before it

What is promised sooner or later is *owed*: `left` counts it, and a scenario waits for it. What may
never be is broken at once, whatever comes later: `broken`. Not every target promises all of it:
what nobody has promised is counted, with the reason, and breaks nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from tandem.drill.consumers.lines import (
    Answered,
    Committed,
    DeadLetter,
    Decided,
    Ended,
    GivenBack,
    Kind,
    Line,
    Place,
    Seen,
    Sent,
)
from tandem.drill.outcomes import SEND_OK

CLOCK_MS: Final = 50.0
"""By how much a message may be seen before its time: drill and nodes read one clock, and round."""

EXAMPLES_MAX: Final = 20

PASSED_OVER: Final = "passed_over"
OUT_OF_ORDER: Final = "consumed_out_of_order"
CHANGED: Final = "changed_after_read"
STRANGE: Final = "strange"
REPEATED: Final = "repeated"
EARLY: Final = "early"
UNCOMMITTED: Final = "uncommitted_seen"
RETRIED_EARLY: Final = "retried_early"
DEAD_EARLY: Final = "dead_letter_early"
MEMBER_ENDED: Final = "member_ended"

RULES: Final = {
    PASSED_OVER: "a group's offset passes a message only when the group has handled it",
    OUT_OF_ORDER: "a group in order gets a message after all that are before it in its queue",
    CHANGED: "what a consumer read at a place of a queue stays there",
    STRANGE: "a consumer gets what was sent, with the body that it was sent with",
    REPEATED: "a message is in its queue at most as often as it was sent, and a transaction once",
    EARLY: "a message that waits is not seen before its time",
    UNCOMMITTED: "the message of a transaction is seen only when it has been committed",
    RETRIED_EARLY: "a message that was given back comes again when its pause is over",
    DEAD_EARLY: "a message is a dead letter only when it has failed as often as its group allows",
    MEMBER_ENDED: "a member of a group reads on through whatever happens to nodes",
}
"""Count: what was promised."""

REPEATED_DELAYS: Final = "repeated_delays"
REPEATED_TRANSACTIONS: Final = "repeated_transactions"
OTHER_RETRIES: Final = "other_retries"
OWED_PLAIN: Final = "owed_plain"
OWED_DELAYS: Final = "owed_delays"
OWED_TRANSACTIONS: Final = "owed_transactions"
OWED_RETRIES: Final = "owed_retries"

_COPIES: Final[Mapping[Kind, str]] = {
    Kind.DELAYED: REPEATED_DELAYS,
    Kind.TIMED: REPEATED_DELAYS,
    Kind.TRANSACTION: REPEATED_TRANSACTIONS,
}
_OWED: Final[Mapping[Kind, str]] = {
    Kind.PLAIN: OWED_PLAIN,
    Kind.DELAYED: OWED_DELAYS,
    Kind.TIMED: OWED_DELAYS,
    Kind.TRANSACTION: OWED_TRANSACTIONS,
    Kind.RETRIED: OWED_RETRIES,
}
EXCEPTIONS: Final = frozenset({*RULES, *_COPIES.values(), *_OWED.values(), OTHER_RETRIES})
"""What a target may say that it does not promise: a rule; that messages of these kinds are not
repeated; that what is owed of a kind comes; that what comes again is what was given back."""

PREFIX: Final = "consumers_"
"""Of all these names, among those of the other counts of a drill."""


class GroupRules(msgspec.Struct, frozen=True, kw_only=True):
    """A group of the load: what it reads, and how."""

    name: str
    topics: tuple[str, ...]
    members: int = 1
    is_orderly: bool = False
    reconsume_max: int | None = None
    """How often a message may come back; None: nothing fails there."""


class Finding(msgspec.Struct, frozen=True):
    """A broken promise, and what it rests on, in words.

    `reason` is by which rule of the target it was promised, or why it was not; empty: as `RULES`.
    """

    rule: str
    text: str
    reason: str = ""

    def in_words(self) -> str:
        """Return it as one line."""
        return f"{self.rule}: {self.text}" + (f" ({self.reason})" if self.reason else "")


class ConsumerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What consumers got. `broken_counts` has the counts above 0: each of them has to be 0."""

    sent: dict[str, int]
    acknowledged: dict[str, int]
    handled: dict[str, int]
    """Messages by group, each counted once."""
    seen_again: int = 0
    """Deliveries of messages that their group had handled before: allowed."""
    dead_letters: int = 0
    asked: int = 0
    """Questions about transactions."""
    left: dict[str, int] = {}
    """What was still owed at the end."""
    broken_counts: dict[str, int] = {}
    findings: list[Finding] = []
    """The first of them."""
    not_promised_counts: dict[str, int] = {}
    """What happened that nobody has promised not to happen; counts above 0."""
    not_promised_left: dict[str, int] = {}
    """What never came, and nobody has promised to come."""
    not_promised: list[Finding] = []
    """The first of both, with why."""

    @property
    def promises_broken(self) -> int:
        """All of them together."""
        return sum(self.broken_counts.values())

    def broken(self) -> list[tuple[str, int]]:
        """The counts above 0, with their names in the report."""
        return [(f"consumers_{name}", count) for name, count in self.broken_counts.items()]


class _Message:
    """What is known of one message."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self.answer: Answered | None = None
        self.state = ""
        self.is_asked = False
        self.places: set[Place] = set()
        self.is_repeated = False

    @property
    def is_acknowledged(self) -> bool:
        return self.answer is not None and self.answer.status == SEND_OK


class _Queue:
    """What a group has handled of a queue: all below `next_offset`, and some beyond."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._beyond: set[int] = set()

    def handle(self, offset: int) -> None:
        self._beyond.add(offset)
        while self.next_offset in self._beyond:
            self._beyond.discard(self.next_offset)
            self.next_offset += 1


_QueueKey = tuple[str, str, str, int]
_Failure = tuple[str, str, int]


class Promises:
    """Takes lines in the order in which they were written.

    `not_promised` says which of `EXCEPTIONS` are not promised where this was played, and why;
    `rules`, by which rule of that place the others are. Both have names with `PREFIX`, and may have
    others.
    """

    def __init__(
        self,
        groups: Sequence[GroupRules],
        *,
        not_promised: Mapping[str, str] = MappingProxyType({}),
        rules: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Broken promises, by the names of `RULES`."""
        self.findings: list[Finding] = []
        self._not_promised = _without_prefix(not_promised)
        self._rules = _without_prefix(rules)
        self._allowed: Counter[str] = Counter()
        self._allowed_findings: list[Finding] = []
        self._groups = {group.name: group for group in groups}
        self._messages: dict[str, _Message] = {}
        self._seen: dict[str, set[str]] = {group.name: set() for group in groups}
        self._owed: dict[str, set[str]] = {group.name: set() for group in groups}
        self._dead: dict[str, set[str]] = {group.name: set() for group in groups}
        self._unasked: set[str] = set()
        self._in_flight = 0
        self._queues: defaultdict[_QueueKey, _Queue] = defaultdict(_Queue)
        self._at: dict[Place, str] = {}
        self._tries: Counter[tuple[str, str]] = Counter()
        self._given_back: dict[_Failure, GivenBack] = {}
        self._ahead_ms = self._behind_ms = 0.0
        self._seen_again = 0
        self._asked = 0

    def take(self, line: Line) -> None:
        """Take the next line."""
        match line:
            case Sent():
                self._messages[line.message_id] = _Message(line)
                self._in_flight += 1
            case Answered():
                self._answered(line)
            case Decided():
                self._decided(line)
            case Seen():
                self._saw(line)
            case GivenBack():
                key = (line.group, line.message_id, line.reconsume_times)
                self._given_back.setdefault(key, line)
            case DeadLetter():
                self._dead_letter(line)
            case Committed():
                self._committed(line)
            case Ended():
                self._break(MEMBER_ENDED, f"{line.member} of {line.group}: {line.reason}")

    def compare_with_log(self, log: Mapping[Place, str]) -> None:
        """Judge what was read by the messages that a log has at the same places at the end."""
        for at, read in self._at.items():
            there = log.get(at, read)
            if there != read:
                lacking = [name for name, owed in self._owed.items() if there in owed]
                never = f", which never came to {', '.join(lacking)}" if lacking else ""
                where = f"{at[0]} of {at[1]}, queue {at[2]} offset {at[3]}"
                self._break(CHANGED, f"{where}: {read} was read, and the log has {there}{never}")

    def allow_early(self, milliseconds: float) -> None:
        """Take note that a broker's clock is that much ahead, or behind if it is below 0.

        A broker goes by its own clock, and what is due by that is due, from now on. What one took
        whose clock was behind, and another gives whose clock is ahead, is early by both.
        """
        self._ahead_ms = max(self._ahead_ms, milliseconds)
        self._behind_ms = max(self._behind_ms, -milliseconds)

    @property
    def _early_ms(self) -> float:
        return CLOCK_MS + self._ahead_ms + self._behind_ms

    def failures_of(self, message_id: str) -> int:
        """Return how often the handler of a message fails; 0 for one that nobody sent."""
        message = self._messages.get(message_id)
        return 0 if message is None else message.sent.failures

    def left(self) -> dict[str, int]:
        """Return what is owed, by words; nothing where all have all."""
        return self._left(are_promised=True)

    def left_unpromised(self) -> dict[str, int]:
        """Return what may still come, and nobody has promised to come."""
        return self._left(are_promised=False)

    def _left(self, *, are_promised: bool) -> dict[str, int]:
        def count(owed: set[str]) -> int:
            return sum(self._is_promised(message_id) is are_promised for message_id in owed)

        found = {f"not handled by {name}": count(owed) for name, owed in self._owed.items()}
        found["transactions that no broker asked about"] = count(self._unasked)
        found["sends in flight"] = self._in_flight if are_promised else 0
        return {words: count for words, count in found.items() if count}

    def _is_promised(self, message_id: str) -> bool:
        """Whether a message has to come to those who are owed it."""
        return _OWED[self._messages[message_id].sent.kind] not in self._not_promised

    def _not_promised_findings(self) -> list[Finding]:
        """Return the first of what nobody has promised otherwise."""
        missing: dict[tuple[str, str], list[str]] = {}
        owed = [(f"not handled by {name}", ids) for name, ids in self._owed.items()]
        for words, ids in (*owed, ("no broker asked", self._unasked)):
            for message_id in sorted(ids):
                name = _OWED[self._messages[message_id].sent.kind]
                if name in self._not_promised:
                    missing.setdefault((name, words), []).append(message_id)
        found = [
            Finding(
                name,
                f"{len(ids):,} {words}, such as {', '.join(ids[:3])}",
                self._not_promised[name],
            )
            for (name, words), ids in missing.items()
        ]
        return (found + self._allowed_findings)[:EXAMPLES_MAX]

    def summary(self) -> ConsumerSummary:
        """Return what came of it so far."""
        sent: Counter[str] = Counter()
        acknowledged: Counter[str] = Counter()
        for message in self._messages.values():
            sent[message.sent.kind] += 1
            acknowledged[message.sent.kind] += message.is_acknowledged
        return ConsumerSummary(
            sent=dict(sent),
            acknowledged=dict(acknowledged),
            handled={name: len(seen) for name, seen in self._seen.items()},
            seen_again=self._seen_again,
            dead_letters=sum(map(len, self._dead.values())),
            asked=self._asked,
            left=self.left(),
            broken_counts={name: self.counts[name] for name in RULES if self.counts[name]},
            findings=self.findings,
            not_promised_counts=dict(self._allowed),
            not_promised_left=self.left_unpromised(),
            not_promised=self._not_promised_findings(),
        )

    def _break(self, rule: str, text: str, narrower: str = "") -> None:
        """Count what was promised never to be; `narrower`: the exception for messages like it."""
        for name in (narrower, rule):
            why_not = self._not_promised.get(name)
            if why_not is not None:
                self._allowed[name] += 1
                if len(self._allowed_findings) < EXAMPLES_MAX:
                    self._allowed_findings.append(Finding(name, text, why_not))
                return
        self.counts[rule] += 1
        if len(self.findings) < EXAMPLES_MAX:
            self.findings.append(Finding(rule, text, self._rules.get(rule, "")))

    def _answered(self, line: Answered) -> None:
        message = self._messages[line.message_id]
        message.answer = line
        self._in_flight -= 1
        self._check_copies(message)
        self._owe(message)

    def _owe(self, message: _Message) -> None:
        """Note for each group what it has to get from now on."""
        sent = message.sent
        if not message.is_acknowledged:
            return
        if sent.kind is Kind.TRANSACTION and message.state != "commit":
            return
        for group in self._groups.values():
            if sent.topic in group.topics and not self._has(group, sent):
                self._owed[group.name].add(sent.message_id)

    def _has(self, group: GroupRules, sent: Sent) -> bool:
        """Whether a group has got all that it can of a message."""
        if group.reconsume_max is not None and sent.failures > group.reconsume_max:
            return sent.message_id in self._dead[group.name]
        return sent.message_id in self._seen[group.name]

    def _decided(self, line: Decided) -> None:
        message = self._messages[line.message_id]
        if line.was_asked:
            self._asked += 1
            self._unasked.discard(line.message_id)
        message.is_asked = message.is_asked or line.was_asked
        # What was decided first counts: answers to later questions say the same.
        if message.state in ("", "unknown"):
            message.state = line.state
        self._owe(message)
        if message.state == "unknown" and message.is_acknowledged and not message.is_asked:
            self._unasked.add(line.message_id)

    def _saw(self, line: Seen) -> None:
        group = self._groups[line.group]
        message = self._messages.get(line.message_id)
        if message is None or not line.is_whole or message.sent.topic != line.topic:
            what = "with another body or topic" if message is not None else "that nobody sent"
            text = f"{_place(line)}: {line.message_id or 'a message'}, {what}"
            self._break(STRANGE, text, _again(line))
        if not line.reconsume_times:
            self._place(group, line)
        if message is None:
            return
        self._check_time(message, line)
        self._tries[line.group, line.message_id] += 1
        sent = message.sent
        if sent.kind is Kind.TRANSACTION and message.state != "commit":
            state = message.state or "not decided"
            text = f"{_place(line)}: {line.message_id} is {state}"
            self._break(UNCOMMITTED, text, _again(line))
        if line.reconsume_times < sent.failures:
            return
        seen = self._seen[line.group]
        self._seen_again += line.message_id in seen
        seen.add(line.message_id)
        self._owed[line.group].discard(line.message_id)

    def _place(self, group: GroupRules, line: Seen) -> None:
        """Judge a message by where it is in the queue that it was sent to."""
        at = (line.topic, line.broker_name, line.queue_id, line.queue_offset)
        before = self._at.setdefault(at, line.message_id)
        if before != line.message_id:
            self._break(CHANGED, f"{_place(line)}: {line.message_id}, and it was {before}")
        message = self._messages.get(line.message_id)
        if message is not None:
            message.places.add(at)
            self._check_copies(message)
        queue = self._queues[line.group, line.topic, line.broker_name, line.queue_id]
        if group.is_orderly and line.queue_offset > queue.next_offset:
            self._break(OUT_OF_ORDER, f"{_place(line)}: before offset {queue.next_offset}")
        queue.handle(line.queue_offset)

    def _check_copies(self, message: _Message) -> None:
        """Find a message that is in its queue more often than it was sent."""
        if message.answer is None or message.is_repeated:
            return
        if len(message.places) > max(1, message.answer.attempts):
            message.is_repeated = True
            times = f"{len(message.places)} times, sent {message.answer.attempts}"
            text = f"{message.sent.message_id} is there {times}"
            self._break(REPEATED, text, _COPIES.get(message.sent.kind, ""))

    def _check_time(self, message: _Message, line: Seen) -> None:
        early = message.sent.due_ms - self._early_ms - line.at_ms
        if early > 0 and not line.reconsume_times:
            self._break(
                EARLY, f"{_place(line)}: {line.message_id}, {early + self._early_ms:.0f} ms early"
            )
        key = (line.group, line.message_id, line.reconsume_times - 1)
        failed = self._given_back.get(key)
        if failed is None:
            return
        early_ms = failed.at_ms + failed.delay_ms - line.at_ms
        if early_ms > self._early_ms:
            text = f"{_place(line)}: {line.message_id}, {early_ms:.0f} ms early"
            self._break(RETRIED_EARLY, text, OTHER_RETRIES)

    def _dead_letter(self, line: DeadLetter) -> None:
        group, message = self._groups[line.group], self._messages.get(line.message_id)
        if message is None:
            text = f"dead letter of {line.group}: {line.message_id} is unknown"
            self._break(STRANGE, text, OTHER_RETRIES)
            return
        tries_min = (group.reconsume_max or 0) + 1
        tries = self._tries[line.group, line.message_id]
        if tries < tries_min or message.sent.failures < tries_min:
            self._break(
                DEAD_EARLY,
                f"{line.message_id} of {line.group}: tried {tries} times, of {tries_min}; it was to"
                f" fail {message.sent.failures} times",
                OTHER_RETRIES,
            )
        self._dead[line.group].add(line.message_id)
        self._owed[line.group].discard(line.message_id)

    def _committed(self, line: Committed) -> None:
        queue = self._queues[line.group, line.topic, line.broker_name, line.queue_id]
        if line.offset > queue.next_offset:
            self._break(
                PASSED_OVER,
                f"{line.group}, {line.topic} of {line.broker_name}, queue {line.queue_id}: the"
                f" offset is {line.offset}, and offset {queue.next_offset} was not handled",
            )


def _again(line: Seen) -> str:
    return OTHER_RETRIES if line.reconsume_times else ""


def _without_prefix(reasons: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX): why for name, why in reasons.items() if name.startswith(PREFIX)
    }


def _place(line: Seen) -> str:
    return (
        f"{line.group}, {line.topic} of {line.broker_name}, queue {line.queue_id} offset"
        f" {line.queue_offset}"
    )
