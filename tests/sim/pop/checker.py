"""What those are promised that receive by POP, judged from a history. Pure.

    LOST            an acknowledged message reached its group neither in time nor as a dead letter
    TWICE           a message was given to two while it was with the first, or twice for one try
    BACK            a message came again, or died, that had been acknowledged with a good handle
    DEAD_TOO_EARLY  a dead letter had tries left
    TRIED_TOO_OFTEN a message came again after its last try
    UNORDERED       in order: a message was given out before the one before it was done; by
                    priority: one answer has a message before one of a higher queue
    PHANTOM         somebody was given what nobody has sent
    CRASHED         a node ended by itself, or wrote a traceback

A client that has no answer knows nothing: its messages may be invisible, its acknowledgements done.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from tandem.wire.system_topics import dlq_topic
from tests.sim.consumers.seen import Stored
from tests.sim.engine.history import Finding
from tests.sim.pop.seen import Got, PopSeen

ROUNDING_SECONDS: Final = 0.002
"""Times on the wire are whole milliseconds."""


class Kind(enum.Enum):
    """What can be wrong; see the module."""

    LOST = enum.auto()
    TWICE = enum.auto()
    BACK = enum.auto()
    DEAD_TOO_EARLY = enum.auto()
    TRIED_TOO_OFTEN = enum.auto()
    UNORDERED = enum.auto()
    PHANTOM = enum.auto()
    CRASHED = enum.auto()


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may be asked for.

    Attributes:
        groups: The group that receives from each topic.
        orderly_topics: Those whose messages come in order; there are no dead letters of them.
        urgent_topics: Those whose highest queue comes first.
        retries: How often a message comes again before it is given up.
        is_complete: Whether what is promised to happen in the end has to have happened.
    """

    groups: dict[str, str]
    orderly_topics: frozenset[str]
    urgent_topics: frozenset[str] = frozenset()
    retries: int
    is_complete: bool = True


class _Check:
    """One history under judgement."""

    def __init__(self, seen: PopSeen, log: Sequence[Stored], expected: Expectations) -> None:
        self.seen = seen
        self.log = log
        self.expected = expected
        self.orderly_groups = {expected.groups[topic] for topic in expected.orderly_topics}
        self.good = {(each.got.group, each.got.key): each for each in seen.acks if each.is_good}
        self.by_key: dict[tuple[str, str], list[Got]] = defaultdict(list)
        for got in seen.got:
            self.by_key[got.group, got.key].append(got)
        self.dead = {(group, each.key) for each in log for group in self._dead_of(each.topic)}
        self.retried: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        for each in log:
            for topic, group in expected.groups.items():
                if each.topic == f"%RETRY%{group}_{topic}":
                    self.retried[group, each.key][each.reconsume_times] += 1

    def _dead_of(self, topic: str) -> list[str]:
        return [group for group in self.expected.groups.values() if dlq_topic(group) == topic]

    def lost(self) -> Iterator[Finding]:
        """Acknowledged, and nobody was done with it. Who got no answer may be."""
        maybe = {(each.got.group, each.got.key) for each in self.seen.acks if not each.is_stale}
        for sent in self.seen.sent.values():
            place = (self.expected.groups[sent.topic], sent.key)
            if sent.is_acknowledged and place not in maybe | self.dead:
                tries = len(self.by_key[place])
                yield Finding(Kind.LOST, f"{sent.key} of {sent.topic}, given {tries} times")

    def twice(self) -> Iterator[Finding]:
        """Given to somebody while it was with somebody."""
        for place, all_got in self.by_key.items():
            for index, first in enumerate(all_got):
                for second in all_got[index + 1 :]:
                    early = first.earliest_again - second.answered_at
                    if early > ROUNDING_SECONDS and second.answer != first.answer:
                        text = f"{_words(first)}, again {early:.3f} s too early: {_words(second)}"
                        yield Finding(Kind.TWICE, text)
            if place[0] in self.orderly_groups:
                continue
            tries = Counter(each.reconsume_times for each in all_got)
            copies = {times: n for times, n in self.retried[place].items() if n > 1}
            if copies or max(tries.values()) > 1:
                text = f"{place}: tries {dict(tries)}, copies {copies}"
                yield Finding(Kind.TWICE, text)

    def back(self) -> Iterator[Finding]:
        """Done, and not done."""
        for place, ack in self.good.items():
            if place in self.dead:
                yield Finding(Kind.BACK, f"{place} is dead, and was done: {_words(ack.got)}")
            if place[0] in self.orderly_groups:
                later = [got for got in self.by_key[place] if got.asked_at > ack.answered_at]
            else:
                times = ack.got.reconsume_times
                later = [got for got in self.by_key[place] if got.reconsume_times > times]
                if any(each > times for each in self.retried[place]):
                    yield Finding(Kind.BACK, f"{place} was put again, and was done")
            for got in later:
                yield Finding(Kind.BACK, f"{_words(got)}, done at {ack.answered_at:.3f}")

    def dead_too_early(self) -> Iterator[Finding]:
        """Each try has a record in the log."""
        for place in self.dead:
            missing = set(range(1, self.expected.retries + 1)) - set(self.retried[place])
            if missing:
                yield Finding(Kind.DEAD_TOO_EARLY, f"{place} without tries {sorted(missing)}")

    def tried_too_often(self) -> Iterator[Finding]:
        """After the last try comes the dead letter."""
        for place, times in self.retried.items():
            if max(times, default=0) > self.expected.retries:
                yield Finding(Kind.TRIED_TOO_OFTEN, f"{place}: {dict(times)}")

    def unordered(self) -> Iterator[Finding]:
        """Each message of a queue is given out when all before it are done, or with them."""
        done: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        for ack in self.seen.acks:
            at = done[ack.got.topic, ack.got.queue_id]
            at[ack.got.offset] = min(at.get(ack.got.offset, ack.asked_at), ack.asked_at)
        together: dict[tuple[int, str, int], set[int]] = defaultdict(set)
        for got in self.seen.got:
            if got.topic not in self.expected.orderly_topics:
                continue
            queue = (got.topic, got.queue_id)
            with_it = together[got.answer, *queue]
            open_before = [
                offset
                for offset in range(got.offset)
                if offset not in with_it and done[queue].get(offset, 1e9) > got.answered_at
            ]
            with_it.add(got.offset)
            if open_before:
                yield Finding(Kind.UNORDERED, f"{_words(got)} before {open_before[:5]}")

    def out_of_turn(self) -> Iterator[Finding]:
        """What is more urgent is before the rest of an answer."""
        before: dict[int, Got] = {}
        for got in self.seen.got:
            if got.topic not in self.expected.urgent_topics:
                continue
            last = before.get(got.answer, got)
            if last.queue_id < got.queue_id:
                yield Finding(Kind.UNORDERED, f"{_words(got)} after {_words(last)}")
            before[got.answer] = got

    def phantoms(self) -> Iterator[Finding]:
        """Nobody has sent it."""
        for got in self.seen.got:
            if got.key not in self.seen.sent:
                yield Finding(Kind.PHANTOM, _words(got))


SAFETY: Final[tuple[Callable[[_Check], Iterator[Finding]], ...]] = (
    _Check.twice,
    _Check.back,
    _Check.dead_too_early,
    _Check.tried_too_often,
    _Check.unordered,
    _Check.out_of_turn,
    _Check.phantoms,
)
IN_THE_END: Final = (_Check.lost,)


def check(seen: PopSeen, log: Sequence[Stored], expected: Expectations) -> list[Finding]:
    """Return every broken promise."""
    judgement = _Check(seen, log, expected)
    rules = (*SAFETY, *IN_THE_END) if expected.is_complete else SAFETY
    return [finding for rule in rules for finding in rule(judgement)]


def is_settled(seen: PopSeen, log: Sequence[Stored], expected: Expectations) -> bool:
    """Whether all has happened that is promised to happen in the end."""
    judgement = _Check(seen, log, expected)
    return not any(True for rule in IN_THE_END for _ in rule(judgement))


def _words(got: Got) -> str:
    place = f"{got.topic} {got.queue_id} {got.offset}"
    return f"{got.answered_at:.3f} {got.client} {got.key} {place} try {got.reconsume_times}"
