"""What became of a message in each consumer group: consumed, not yet, retried, given up.

A group has one number in each queue, its offset. What is before it counts as consumed: whether a
member handled it, a filter left it out, or a reset passed over it, nothing says. A message that a
member could not handle is stored once more for the group, with the same unique key.
"""

from collections.abc import Iterator

import msgspec

from tandem.life.evidence import Evidence, Gap, GroupAt, QueueAt
from tandem.life.records import Record, Role, about
from tandem.life.result import Finding, GroupState, Kind, State
from tandem.life.waiting import due_of
from tandem.life.words import count_words, span_words, time_words


class Delivery(msgspec.Struct):
    """What is known of one group."""

    state: GroupState
    findings: list[Finding]
    gaps: list[Gap]


def deliveries(records: list[Record], evidence: Evidence) -> Iterator[Delivery]:
    """Say what became of a message in each group that reads its topic, or has had it."""
    originals = [each for each in records if each.role is Role.ORIGINAL and each.is_in_log]
    if not originals and not any(each.group for each in records):
        return
    topics = {each.message.topic for each in originals}
    for name in sorted(_groups(records, topics, evidence)):
        progress = [each for each in evidence.groups if each.group == name]
        yield _Group(name, progress, records, originals, evidence).delivery()


def _groups(records: list[Record], topics: set[str], evidence: Evidence) -> set[str]:
    names = {each.group for each in records if each.group}
    for group in evidence.groups:
        read = {queue.topic for queue in group.queues} | set(group.subscriptions)
        if read & topics:
            names.add(group.group)
    return names


def no_readers(records: list[Record], evidence: Evidence) -> Iterator[Finding]:
    """Say so if no group reads the topic."""
    originals = [each for each in records if each.role is Role.ORIGINAL and each.is_in_log]
    topics = {each.message.topic for each in originals}
    if not topics or not topics <= evidence.readers_known or _groups(records, topics, evidence):
        return
    topic = originals[-1].message.topic
    yield Finding(
        kind=Kind.NO_READERS,
        text=f"No consumer group reads topic {topic}, or has an offset in it.",
        evidence=["the brokers, asked who consumes the topic"]
        if evidence.is_cluster
        else ["the tables of offsets in the directories"],
        topic=topic,
    )


class _Group:
    """One group and one message."""

    def __init__(
        self,
        name: str,
        progress: list[GroupAt],
        records: list[Record],
        originals: list[Record],
        evidence: Evidence,
    ) -> None:
        self._name = name
        self._progress = progress
        self._evidence = evidence
        self._originals = originals
        own = [each for each in records if each.group == name and each.is_in_log]
        self._retries = [each for each in own if each.role is Role.RETRY]
        self._dead = [each for each in own if each.role is Role.DEAD]
        self._waits = [each for each in own if each.role in (Role.DELAYED, Role.TIMER)]
        self._findings: list[Finding] = []
        self._gaps: list[Gap] = []

    def delivery(self) -> Delivery:
        """Return what is known, the last state first."""
        for record in self._retries:
            self._retried(record)
        if self._dead:
            return self._end(self._given_up())
        waiting = self._waiting()
        if waiting is not None:
            return self._end(self._waits_for(waiting))
        if self._retries:
            return self._end(self._at(self._retries[-1]))
        return self._end(self._at(self._originals[-1]) if self._originals else self._unknown())

    def _end(self, state: GroupState) -> Delivery:
        for duplicate in self._originals[:-1] if not (self._retries or self._dead) else ():
            self._at(duplicate)
        return Delivery(state, self._findings, self._gaps)

    def _find(
        self,
        kind: Kind,
        text: str,
        evidence: list[str],
        record: Record,
        *,
        at_ms: int = 0,
        due_ms: int = 0,
        is_concluded: bool = False,
    ) -> None:
        self._findings.append(
            about(
                record,
                kind,
                text,
                evidence,
                at_ms=at_ms,
                due_ms=due_ms,
                is_concluded=is_concluded,
                group=self._name,
            )
        )

    def _retried(self, record: Record) -> None:
        self._find(
            Kind.RETRIED,
            f"Group {self._name} had not handled it, and got it again: try"
            f" {record.message.reconsume_times + 1}, from {record.place}.",
            [f"RECONSUMETIMES {record.message.reconsume_times}; {record.sources[0]}"],
            record,
            at_ms=record.message.store_timestamp_ms,
        )

    def _given_up(self) -> GroupState:
        letter = self._dead[-1]
        times = letter.message.reconsume_times
        self._find(
            Kind.DEAD,
            f"Group {self._name} gave it up after {count_words(max(times, 1), 'try')}"
            f": it is a dead letter, in {letter.place}. The group does not get it any more.",
            [f"RECONSUMETIMES {times}; {letter.sources[0]}"],
            letter,
            at_ms=letter.message.store_timestamp_ms,
        )
        return GroupState(group=self._name, state=State.DEAD, retries=len(self._retries))

    def _waiting(self) -> Record | None:
        """Return the retry that has not come back yet, if there is one."""
        arrived = {each.message.reconsume_times for each in self._retries}
        left = [each for each in self._waits if each.message.reconsume_times not in arrived]
        return left[-1] if left else None

    def _waits_for(self, record: Record) -> GroupState:
        due_ms, how = due_of(record, self._evidence)
        when = f" at {time_words(due_ms)} ({how})" if due_ms else " later"
        late_ms = self._evidence.now_ms - due_ms
        late = f" That was {span_words(late_ms)} ago." if due_ms and late_ms > 0 else ""
        self._find(
            Kind.RETRY_WAITS,
            f"Group {self._name} has not handled it, and gets it again{when}: try"
            f" {record.message.reconsume_times + 1}.{late}",
            [f"RECONSUMETIMES {record.message.reconsume_times}; {record.sources[0]}"],
            record,
            at_ms=record.message.store_timestamp_ms,
            due_ms=due_ms,
        )
        return GroupState(
            group=self._name, state=State.AGAIN, retries=len(self._retries), due_ms=due_ms
        )

    def _unknown(self) -> GroupState:
        return GroupState(group=self._name, state=State.UNKNOWN, retries=len(self._retries))

    def _at(self, record: Record) -> GroupState:
        """Compare a record with the offset of the group."""
        if any(each.is_broadcasting for each in self._progress):
            return self._broadcast(record)
        place, source = self._queue_of(record)
        message = record.message
        if place is None:
            return self._not_begun(record)
        state = GroupState(
            group=self._name,
            state=State.NOT_YET,
            retries=len(self._retries),
            queue_offset=message.queue_offset,
            committed=place.committed,
            before_it=max(0, message.queue_offset - place.committed),
        )
        if place.committed > message.queue_offset:
            return self._passed(record, place, source, state)
        return self._not_yet(record, place, source, state)

    def _queue_of(self, record: Record) -> tuple[QueueAt | None, str]:
        """Return where the group is in the queue of a record; the farthest of several copies."""
        message = record.message
        found = [
            (queue, progress.source)
            for progress in self._progress
            for queue in progress.queues
            if (queue.topic, queue.queue_id) == (message.topic, message.queue_id)
            and (queue.broker == record.broker if queue.broker else queue.node in record.nodes)
        ]
        return max(found, key=lambda each: each[0].committed, default=(None, ""))

    def _broadcast(self, record: Record) -> GroupState:
        self._find(
            Kind.BROADCAST,
            f"Group {self._name} is broadcasting: each of its members gets every message.",
            [self._progress[0].source],
            record,
        )
        self._gaps.append(
            Gap(
                what=f"whether members of group {self._name} have consumed it",
                why="the offsets of a group that is broadcasting are kept by its members",
                remedy="look into the offsets file of each member",
            )
        )
        return self._unknown()

    def _not_begun(self, record: Record) -> GroupState:
        if not self._progress:
            self._gaps.append(
                Gap(
                    what=f"how far group {self._name} is",
                    why="nobody who was asked says so",
                )
            )
            return self._unknown()
        is_retry = record.role is Role.RETRY
        what = "its queue of retries" if is_retry else "this queue"
        begins = (
            ""
            if is_retry
            else " A group without an offset begins where its members say (the newest message,"
            " unless they say another place): it may never get this one."
        )
        self._find(
            Kind.NO_OFFSET,
            f"Group {self._name} has no offset in {what}: it has consumed nothing of it."
            f"{self._readers(None)}{begins}",
            [each.source for each in self._progress],
            record,
            is_concluded=True,
        )
        return GroupState(
            group=self._name,
            state=State.AGAIN if is_retry else State.NO_OFFSET,
            retries=len(self._retries),
            queue_offset=record.message.queue_offset,
        )

    def _passed(self, record: Record, place: QueueAt, source: str, state: GroupState) -> GroupState:
        message = record.message
        shown = [f"offset {place.committed} of the group in the queue: {source}"]
        expression = self._unwanted(record)
        if expression:
            self._find(
                Kind.FILTERED,
                f"Group {self._name} is past it, and its members want {expression!r} of"
                f" {message.topic}: this one has {_tags_words(message.tags)}, so they do not get"
                " it.",
                [*shown, "what its members subscribe to now"],
                record,
                is_concluded=True,
            )
            return msgspec.structs.replace(state, state=State.FILTERED)
        what = "the retry" if record.role is Role.RETRY else "it"
        self._find(
            Kind.CONSUMED,
            f"Group {self._name} has consumed {what}: its offset in the queue is"
            f" {place.committed}, and the message has {message.queue_offset}.",
            shown,
            record,
            is_concluded=True,
        )
        if any(
            each.group == self._name and each.what == "handled" for each in self._evidence.traces
        ):
            return msgspec.structs.replace(state, state=State.CONSUMED)
        self._gaps.append(
            Gap(
                what=f"whether group {self._name} has handled it",
                why="an offset counts what a filter or a reset has passed over as consumed, too",
                remedy="its members know: their logs, or traces of messages",
            )
        )
        return msgspec.structs.replace(state, state=State.CONSUMED)

    def _not_yet(
        self, record: Record, place: QueueAt, source: str, state: GroupState
    ) -> GroupState:
        message = record.message
        before = (
            f"{count_words(state.before_it, 'message')} of the queue"
            f" {'comes' if state.before_it == 1 else 'come'} first"
            if state.before_it
            else "it is the next one"
        )
        fetched = ""
        if place.pulled > message.queue_offset:
            fetched = " A member has fetched it, and has not said that it is done."
        moved = ""
        if place.last_consumed_ms:
            moved = (
                " The last message that it consumed here was stored at"
                f" {time_words(place.last_consumed_ms)}."
            )
        # Brokers that are asked answer 0 where there is no offset.
        none = ", or it has none" if not place.committed and place.broker else ""
        expression = self._unwanted(record)
        unwanted = ""
        if expression:
            unwanted = (
                f" It will not get it: its members want {expression!r}, and this one has"
                f" {_tags_words(message.tags)}."
            )
        what = "the retry" if record.role is Role.RETRY else "it"
        self._find(
            Kind.NOT_YET,
            f"Group {self._name} has not consumed {what} yet: its offset in the queue is"
            f" {place.committed}{none}, the message has {message.queue_offset}; {before}."
            f"{fetched}{self._readers(place)}{moved}{unwanted}",
            [f"offset {place.committed} of the group in the queue: {source}"],
            record,
        )
        if record.role is Role.RETRY:
            return msgspec.structs.replace(state, state=State.AGAIN)
        return state

    def _readers(self, place: QueueAt | None) -> str:
        """Say who reads the queue, as far as anybody says so."""
        counts = [each.members_count for each in self._progress if each.members_count is not None]
        if not counts:
            return ""
        if not max(counts):
            return " No member of the group is online."
        online = f" {count_words(max(counts), 'member')} of it"
        online += " is online" if max(counts) == 1 else " are online"
        if place is not None and place.client_id:
            return f"{online}; {place.client_id} reads this queue."
        return f"{online}; none says that it reads this queue."

    def _unwanted(self, record: Record) -> str:
        """Return the subscription that leaves a message out; empty if none is known to."""
        if record.role is Role.RETRY:
            return ""
        for progress in self._progress:
            expression = progress.subscriptions.get(record.message.topic, "")
            if expression and not _may_want(expression, record.message.tags):
                return expression
        return ""


def _may_want(expression: str, tags: str) -> bool:
    """Whether a subscription by tags has a message; of one that is no list of tags, yes."""
    wanted = [part.strip() for part in expression.split("||")]
    if "*" in wanted or any(not part or " " in part for part in wanted):
        return True  # everything, or an expression in SQL92
    return tags in wanted


def _tags_words(tags: str) -> str:
    return f"the tag {tags!r}" if tags else "no tag"
