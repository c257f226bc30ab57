"""What consumer groups and transactions are promised, judged from a history. Pure.

    LOST                an acknowledged message was neither consumed nor put with the dead letters
    DEAD_TOO_EARLY      ... was put there though its group had tries left
    DEAD_MISSING        ... was given up, and is not there
    TRIED_TOO_OFTEN     ... was delivered again after its last try
    PHANTOM             somebody consumed what nobody has sent
    GAP                 a group consumed a message before the one in front of it
    UNORDERED           a consumer did not go on with the next message of its queue
    ODD                 a pull left something out
    MOVED               a consumer was sent elsewhere, though nothing was deleted
    OFFSET_WENT_BACK    a group was told another place than that which was committed last
    TWO_HOLDERS         two clients trusted in a lock of one queue, by the word of one master
    FALSE_GRANT         who was not master gave a lock
    ROLLED_BACK_SEEN    a message shows whose producer never committed it
    COMMIT_LOST         a commit was answered, and its message is not there
    COMMITTED_TWICE     the log has the message of one transaction twice, or gave it up as well
    DELIVERED_TWICE     a message that had to wait was delivered more often than it waited (fenced)
    HALF_OPEN           a transaction has no end
    ENDED_GIVEN_UP      a transaction was given up although its end had been answered
    CRASHED             a node ended by itself, or wrote a traceback

A consumer may get a message any number of times, a log may hold what was sent twice; a transaction
may not end twice. Two clients may trust in locks of two masters: a new one knows none of the locks
of the last (see `node/tables/queue_locks.py`). Somebody may end the lease of a master that lives:
until it hears of that it serves on, gives locks, says what was committed before, and sends back a
reader that is ahead of it.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from tandem.wire.system_topics import (
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    dlq_topic,
)
from tests.sim.consumers.seen import Consumed, Decision, OffsetTold, QueueKey, Seen, Stored
from tests.sim.engine.history import Finding


class Kind(enum.Enum):
    """What can be wrong; see the module."""

    LOST = enum.auto()
    DEAD_TOO_EARLY = enum.auto()
    DEAD_MISSING = enum.auto()
    TRIED_TOO_OFTEN = enum.auto()
    PHANTOM = enum.auto()
    GAP = enum.auto()
    UNORDERED = enum.auto()
    ODD = enum.auto()
    MOVED = enum.auto()
    OFFSET_WENT_BACK = enum.auto()
    TWO_HOLDERS = enum.auto()
    FALSE_GRANT = enum.auto()
    ROLLED_BACK_SEEN = enum.auto()
    COMMIT_LOST = enum.auto()
    COMMITTED_TWICE = enum.auto()
    DELIVERED_TWICE = enum.auto()
    HALF_OPEN = enum.auto()
    ENDED_GIVEN_UP = enum.auto()
    CRASHED = enum.auto()


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may be asked for.

    Attributes:
        groups: The group that reads each topic in which messages are sent.
        max_reconsume_times: How often a group tries again.
        transaction_topic: Where transactions put their messages.
        is_complete: Whether all is healed and time enough has passed: what is promised to happen
            in the end has to have happened.
        unaware_seconds: So long after the next one has begun a master may not know of it.
        forgets_unsynced: The master may have lost what readers had seen, and nobody had been told
            of: they are moved back.
        delivers_once: No switch of masters repeats the delivery of a message that waited.
    """

    groups: dict[str, str]
    max_reconsume_times: int
    transaction_topic: str
    is_complete: bool = True
    unaware_seconds: float = 0.0
    forgets_unsynced: bool = False
    delivers_once: bool = False


class _Check:
    """One history under judgement."""

    def __init__(self, seen: Seen, log: Sequence[Stored], expected: Expectations) -> None:
        self.seen = seen
        self.log = log
        self.expected = expected
        self.keys: dict[str, Counter[str]] = defaultdict(Counter)
        """Topic -> key -> how often the log has it."""
        for record in log:
            self.keys[record.topic][record.key] += 1
        self.done = {(each.group, each.key) for each in seen.consumed if each.is_ok}

    # Messages

    def lost(self) -> Iterator[Finding]:
        """Acknowledged, and reached nobody. That of a transaction counts once it is in the log."""
        owed = [(sent.topic, sent.key) for sent in self.seen.sent.values() if sent.is_acknowledged]
        topic = self.expected.transaction_topic
        owed += [(topic, key) for key in self.seen.transactions if self.keys[topic][key]]
        for topic, key in owed:
            group = self.expected.groups[topic]
            if (group, key) not in self.done and not self.keys[dlq_topic(group)][key]:
                yield Finding(Kind.LOST, f"{key} of {topic} did not reach {group}")

    def dead_too_early(self) -> Iterator[Finding]:
        """Among the dead letters, and never failed for the last time."""
        most = self.expected.max_reconsume_times
        failed = {
            (each.group, each.key)
            for each in self.seen.consumed
            if not each.is_ok and each.reconsume_times >= most
        }
        for group in self.expected.groups.values():
            for key in self.keys[dlq_topic(group)]:
                if (group, key) not in failed:
                    yield Finding(Kind.DEAD_TOO_EARLY, f"{key} of {group}")

    def dead_missing(self) -> Iterator[Finding]:
        """Sent back for the last time, and not among the dead letters."""
        for each in self.seen.sent_back:
            is_last = each.reconsume_times >= self.expected.max_reconsume_times
            if is_last and not self.keys[dlq_topic(each.group)][each.key]:
                yield Finding(Kind.DEAD_MISSING, f"{each.key} of {each.group}")

    def tried_too_often(self) -> Iterator[Finding]:
        """Delivered after its last try."""
        for each in self.seen.consumed:
            if each.reconsume_times > self.expected.max_reconsume_times:
                text = f"{each.key} of {each.group}: {each.reconsume_times}"
                yield Finding(Kind.TRIED_TOO_OFTEN, text)

    def phantoms(self) -> Iterator[Finding]:
        """Consumed, and never sent."""
        known = self.seen.sent.keys() | self.seen.transactions.keys()
        for key in {each.key: None for each in self.seen.consumed}:
            if key not in known:
                yield Finding(Kind.PHANTOM, key)

    # Order

    def gaps(self) -> Iterator[Finding]:
        """A group goes on where it is, or before that."""
        if self.expected.forgets_unsynced:
            return
        ends: dict[tuple[str, QueueKey], int] = defaultdict(int)
        for each in self.seen.consumed:
            place = (each.group, each.queue)
            if each.queue_offset > ends[place]:
                yield Finding(Kind.GAP, f"{_words(each)} after {ends[place] - 1}")
            ends[place] = max(ends[place], each.queue_offset + 1)

    def unordered(self) -> Iterator[Finding]:
        """From taking up a queue to giving it back, one message after the other."""
        if self.expected.forgets_unsynced:
            return
        last: dict[int, Consumed] = {}
        for each in self.seen.consumed:
            before = last.get(each.session)
            if before is not None and each.queue_offset != before.queue_offset + 1:
                yield Finding(Kind.UNORDERED, f"{_words(each)} after {before.queue_offset}")
            last[each.session] = each

    def odd(self) -> Iterator[Finding]:
        """See `Seen.oddities`."""
        if not self.expected.forgets_unsynced:
            yield from (Finding(Kind.ODD, text) for text in self.seen.oddities)

    def moved(self) -> Iterator[Finding]:
        """Nothing is ever deleted. Only a master that was deposed may be behind its readers."""
        if self.expected.forgets_unsynced:
            return
        for each in self.seen.moves:
            masters = self._masters(each.asked_at, each.answered_at)
            if each.to > each.offset or each.node in masters:
                text = f"{each.group} {each.queue} from {each.offset} to {each.to} by {each.node}"
                yield Finding(Kind.MOVED, f"{each.answered_at:.3f} {text}")

    # Offsets

    def offsets(self) -> Iterator[Finding]:
        """What a group is told is what was committed last, or at the same time."""
        unaware = self.expected.unaware_seconds
        for told in self.seen.told:
            masters = self._masters(told.asked_at, told.answered_at)
            earlier = self._masters(told.asked_at - unaware, told.answered_at)
            is_unaware = told.node in earlier - masters
            if not is_unaware and told.offset not in self._possible(told):
                text = f"{told.group} {told.queue}: {told.offset} at {told.answered_at:.3f}"
                yield Finding(Kind.OFFSET_WENT_BACK, text)

    def _possible(self, told: OffsetTold) -> set[int | None]:
        mine = [
            each
            for each in self.seen.commits
            if (each.group, each.queue) == (told.group, told.queue)
            and each.asked_at <= told.answered_at
        ]
        forgot_at = max(
            (at for at in self.seen.lost_memory_at if at <= told.answered_at), default=-1.0
        )
        standing = [
            each
            for each in mine
            if each.is_settled and forgot_at < each.answered_at <= told.asked_at
        ]
        # Whatever ended before one of these began is gone.
        last = max((each.asked_at for each in standing), default=-1.0)
        possible: set[int | None] = {each.offset for each in mine if each.answered_at >= last}
        return possible if standing else possible | {None, 0}

    # Locks

    def two_holders(self) -> Iterator[Finding]:
        """Two trust at the same time, and one master is to blame."""
        holdings = sorted(self.seen.holdings, key=lambda each: (each.queue, each.begin))
        for index, one in enumerate(holdings):
            for other in holdings[index + 1 :]:
                if other.queue != one.queue or other.begin >= one.until:
                    break
                is_same = other.client == one.client or other.begin >= other.until
                if not is_same and one.grantor and other.grantor == one.grantor:
                    text = f"{one.queue}: {one.client} until {one.until:.3f}, {other.client}"
                    yield Finding(Kind.TWO_HOLDERS, f"{text} from {other.begin:.3f}")

    def false_grants(self) -> Iterator[Finding]:
        """The node was not master between question and answer, and had cause to know."""
        unaware = self.expected.unaware_seconds
        for grant in self.seen.grants:
            if grant.node not in self._masters(grant.asked_at - unaware, grant.answered_at):
                text = f"{grant.node} at {grant.answered_at:.3f}"
                yield Finding(Kind.FALSE_GRANT, text)

    def _masters(self, begin: float, end: float) -> set[str]:
        """Who was master at any time between these two."""
        terms = self.seen.terms
        return {
            term.node
            for index, term in enumerate(terms)
            if term.at_seconds <= end
            and (index + 1 == len(terms) or terms[index + 1].at_seconds >= begin)
        }

    # Transactions

    def not_committed(self) -> Iterator[Finding]:
        """What was not committed is seen by nobody, in the log or by a consumer."""
        shown = self.keys[self.expected.transaction_topic].keys() | {
            each.key for each in self.seen.consumed
        }
        for each in self.seen.transactions.values():
            if each.decision is not Decision.COMMIT and each.key in shown:
                yield Finding(Kind.ROLLED_BACK_SEEN, f"{each.key} ({each.decision.name})")

    def commits_lost(self) -> Iterator[Finding]:
        """Answered as committed, and not in the log."""
        stored = self.keys[self.expected.transaction_topic]
        for each in self.seen.transactions.values():
            if each.was_ended and each.decision is Decision.COMMIT and not stored[each.key]:
                yield Finding(Kind.COMMIT_LOST, each.key)

    def committed_twice(self) -> Iterator[Finding]:
        """The log has one end of each."""
        stored = self.keys[self.expected.transaction_topic]
        given_up = self.keys[TRANS_CHECK_MAX_TIME_TOPIC]
        for key in self.seen.transactions:
            if stored[key] + given_up[key] > 1:
                text = f"{key}: {stored[key]} times, given up {given_up[key]} times"
                yield Finding(Kind.COMMITTED_TWICE, text)

    def ended_given_up(self) -> Iterator[Finding]:
        """An answered end is the end."""
        for each in self.seen.transactions.values():
            if each.was_ended and self.keys[TRANS_CHECK_MAX_TIME_TOPIC][each.key]:
                yield Finding(Kind.ENDED_GIVEN_UP, each.key)

    def half_open(self) -> Iterator[Finding]:
        """A half in the log has a copy that an op names; one that was answered is in the log."""
        ended = {
            offset
            for record in self.log
            if record.topic == RMQ_SYS_TRANS_OP_HALF_TOPIC
            for offset in record.ended
        }
        copies: dict[str, list[int]] = {
            each.key: [] for each in self.seen.transactions.values() if each.is_prepared
        }
        for record in self.log:
            if record.topic == RMQ_SYS_TRANS_HALF_TOPIC:
                copies.setdefault(record.key, []).append(record.queue_offset)
        for key, offsets in copies.items():
            if ended.isdisjoint(offsets):
                yield Finding(Kind.HALF_OPEN, f"{key}: {offsets or 'not in the log'}")

    def delivered_twice(self) -> Iterator[Finding]:
        """A message that was sent twice waits twice, and is delivered twice."""
        if not self.expected.delivers_once:
            return
        waiting = Counter((each.waits_for, each.key) for each in self.log if each.waits_for)
        delivered = Counter((each.topic, each.key) for each in self.log if each.was_delayed)
        for (topic, key), count in delivered.items():
            if count > waiting[topic, key]:
                words = f"{key} in {topic}: {count} times, of {waiting[topic, key]}"
                yield Finding(Kind.DELIVERED_TWICE, words)


SAFETY: Final[tuple[Callable[[_Check], Iterator[Finding]], ...]] = (
    _Check.dead_too_early,
    _Check.tried_too_often,
    _Check.phantoms,
    _Check.gaps,
    _Check.unordered,
    _Check.odd,
    _Check.moved,
    _Check.offsets,
    _Check.two_holders,
    _Check.false_grants,
    _Check.not_committed,
    _Check.committed_twice,
    _Check.ended_given_up,
    _Check.delivered_twice,
)
IN_THE_END: Final = (_Check.lost, _Check.dead_missing, _Check.commits_lost, _Check.half_open)


def check(seen: Seen, log: Sequence[Stored], expected: Expectations) -> list[Finding]:
    """Return every broken promise."""
    judgement = _Check(seen, log, expected)
    rules = (*SAFETY, *IN_THE_END) if expected.is_complete else SAFETY
    return [finding for rule in rules for finding in rule(judgement)]


def is_settled(seen: Seen, log: Sequence[Stored], expected: Expectations) -> bool:
    """Whether all has happened that is promised to happen in the end."""
    judgement = _Check(seen, log, expected)
    return not any(True for rule in IN_THE_END for _ in rule(judgement))


def overlaps_of_masters(seen: Seen) -> int:
    """How often two clients trusted in locks of two masters. It is no broken promise."""
    holdings = sorted(seen.holdings, key=lambda each: (each.queue, each.begin))
    return sum(
        other.queue == one.queue
        and other.client != one.client
        and max(one.begin, other.begin) < min(one.until, other.until)
        and one.grantor != other.grantor
        for index, one in enumerate(holdings)
        for other in holdings[index + 1 :]
    )


def _words(each: Consumed) -> str:
    return f"{each.at_seconds:.3f} {each.group} {each.client} {each.queue} {each.queue_offset}"
