"""A consumers' load that never ran: its ledger made up, sound, and with known faults planted."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

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
    Seen,
    Sent,
)
from tandem.drill.consumers.promises import (
    CHANGED,
    DEAD_EARLY,
    EARLY,
    MEMBER_ENDED,
    OUT_OF_ORDER,
    PASSED_OVER,
    REPEATED,
    RETRIED_EARLY,
    STRANGE,
    UNCOMMITTED,
    GroupRules,
    Promises,
)

PLAIN, WAITING, PAID, FLAKY = "plain", "waiting", "paid", "flaky"
FIRST = GroupRules(name="first", topics=(PLAIN, WAITING, PAID))
ORDERED = GroupRules(name="ordered", topics=(PLAIN,), is_orderly=True)
RETRYING = GroupRules(name="retrying", topics=(FLAKY,), reconsume_max=2)
GROUPS = (FIRST, ORDERED, RETRYING)

RETRY_MS = 1_000.0
MESSAGES = 6


class PlantedConsumers:
    """The lines of a sound ledger, in order; each plant changes some of them."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._now_ms = 1_000_000.0
        self._offsets: dict[tuple[str, str], int] = {}
        for number in range(MESSAGES):
            self._plain(number)
            self._delayed(number)
            self._transaction(number)
            self._retried(number)
        for group in GROUPS:
            for topic in group.topics:
                self.commit(group.name, topic)

    def find(self, kind: type[Line], message_id: str, **fields: object) -> int:
        """Where the first line like that is."""
        return next(
            number
            for number, line in enumerate(self.lines)
            if isinstance(line, kind)
            and getattr(line, "message_id", "") == message_id
            and all(getattr(line, name) == value for name, value in fields.items())
        )

    def change(self, number: int, **fields: object) -> None:
        """Let a line say something else."""
        self.lines[number] = msgspec.structs.replace(self.lines[number], **fields)

    def commit(self, group: str, topic: str, beyond: int = 0) -> None:
        """Let a master say how far a group is."""
        offset = self._offsets.get((group, topic), 0) + beyond
        self._add(
            Committed(
                group=group,
                topic=topic,
                broker_name="b",
                queue_id=0,
                offset=offset,
                at_ms=self.now(),
            )
        )

    def now(self) -> float:
        """A time that goes on."""
        self._now_ms += 1
        return self._now_ms

    def send(self, kind: Kind, number: int, topic: str, **fields: object) -> str:
        """Send and acknowledge; return the message's id."""
        message_id = f"{kind}-{number:06d}"
        sent = Sent(message_id=message_id, kind=kind, topic=topic, at_ms=self.now())
        self._add(msgspec.structs.replace(sent, **fields))
        self._add(Answered(message_id=message_id, status="SEND_OK", reason="", at_ms=self.now()))
        return message_id

    def see(self, group: str, message_id: str, topic: str, reconsume_times: int = 0) -> None:
        """Hand a message to a group, the next one of its queue."""
        key = (group, topic if not reconsume_times else f"retry of {topic}")
        offset = self._offsets.get(key, 0)
        self._offsets[key] = offset + 1
        self._add(
            Seen(
                group=group,
                member=f"{group}-1",
                message_id=message_id,
                topic=topic,
                broker_name="b",
                queue_id=0,
                queue_offset=offset,
                reconsume_times=reconsume_times,
                at_ms=self.now(),
            )
        )

    def decide(self, message_id: str, state: str, *, was_asked: bool = False) -> None:
        """End a transaction."""
        self._add(
            Decided(message_id=message_id, state=state, at_ms=self.now(), was_asked=was_asked)
        )

    def _add(self, line: Line) -> None:
        self.lines.append(line)

    def _plain(self, number: int) -> None:
        message_id = self.send(Kind.PLAIN, number, PLAIN)
        self.see("first", message_id, PLAIN)
        self.see("ordered", message_id, PLAIN)

    def _delayed(self, number: int) -> None:
        message_id = self.send(Kind.DELAYED, number, WAITING, due_ms=self.now() + 500)
        self._now_ms += 600
        self.see("first", message_id, WAITING)

    def _transaction(self, number: int) -> None:
        """Commit, roll back, and leave to a question, in turn."""
        message_id = self.send(Kind.TRANSACTION, number, PAID)
        state = ("commit", "rollback", "unknown")[number % 3]
        self.decide(message_id, state)
        if state == "unknown":
            self.decide(message_id, "commit", was_asked=True)
        if state != "rollback":
            self.see("first", message_id, PAID)

    def _retried(self, number: int) -> None:
        """Fail never, once, and always, in turn."""
        failures = (0, 1, 99)[number % 3]
        message_id = self.send(Kind.RETRIED, number, FLAKY, failures=failures)
        for times in range(3):
            self.see("retrying", message_id, FLAKY, reconsume_times=times)
            if times >= failures:
                return
            self._add(
                GivenBack(
                    group="retrying",
                    message_id=message_id,
                    reconsume_times=times,
                    at_ms=self.now(),
                    delay_ms=RETRY_MS,
                )
            )
            self._now_ms += RETRY_MS
        self._add(DeadLetter(group="retrying", message_id=message_id, at_ms=self.now()))


def an_offset_that_passes_a_message(planted: PlantedConsumers) -> str:
    planted.commit("first", PLAIN, beyond=1)
    return PASSED_OVER


def a_message_that_a_group_never_got(planted: PlantedConsumers) -> str:
    """Its offset has gone on all the same."""
    del planted.lines[planted.find(Seen, "plain-000003", group="first")]
    return PASSED_OVER


def two_messages_in_the_wrong_order(planted: PlantedConsumers) -> str:
    one = planted.find(Seen, "plain-000002", group="ordered")
    other = planted.find(Seen, "plain-000003", group="ordered")
    planted.lines[one : other + 1] = [
        planted.lines[other],
        *planted.lines[one + 1 : other],
        planted.lines[one],
    ]
    # So that the message is known when it is handed out: it is the order that is wrong.
    sent = planted.find(Sent, "plain-000003")
    planted.lines.insert(0, planted.lines.pop(sent))
    answered = planted.find(Answered, "plain-000003")
    planted.lines.insert(1, planted.lines.pop(answered))
    return OUT_OF_ORDER


def another_message_at_a_place_that_was_read(planted: PlantedConsumers) -> str:
    place = planted.find(Seen, "plain-000001", group="ordered")
    planted.change(place, message_id="plain-000000")
    return CHANGED


def a_message_that_nobody_sent(planted: PlantedConsumers) -> str:
    planted.see("first", "plain-999999", PLAIN)
    return STRANGE


def a_message_with_another_body(planted: PlantedConsumers) -> str:
    planted.change(planted.find(Seen, "plain-000004", group="first"), is_whole=False)
    return STRANGE


def a_message_in_another_topic(planted: PlantedConsumers) -> str:
    planted.see("first", "plain-000001", WAITING)
    return STRANGE


def a_dead_letter_of_nobody(planted: PlantedConsumers) -> str:
    planted.lines.append(DeadLetter(group="retrying", message_id="x", at_ms=planted.now()))
    return STRANGE


def a_message_that_is_stored_twice(planted: PlantedConsumers) -> str:
    planted.see("first", "plain-000002", PLAIN)
    return REPEATED


def a_transaction_that_ended_twice(planted: PlantedConsumers) -> str:
    planted.see("first", "transaction-000000", PAID)
    return REPEATED


def a_message_before_its_time(planted: PlantedConsumers) -> str:
    place = planted.find(Seen, "delayed-000002")
    sent = planted.lines[planted.find(Sent, "delayed-000002")]
    assert isinstance(sent, Sent)
    planted.change(place, at_ms=sent.due_ms - 100)
    return EARLY


def a_transaction_that_was_rolled_back_and_is_seen(planted: PlantedConsumers) -> str:
    planted.see("first", "transaction-000001", PAID)
    return UNCOMMITTED


def a_transaction_that_is_seen_before_it_is_committed(planted: PlantedConsumers) -> str:
    decided = planted.find(Decided, "transaction-000003")
    planted.lines.append(planted.lines.pop(decided))
    return UNCOMMITTED


def a_message_that_comes_again_too_soon(planted: PlantedConsumers) -> str:
    back = planted.lines[planted.find(GivenBack, "retried-000001")]
    assert isinstance(back, GivenBack)
    place = planted.find(Seen, "retried-000001", reconsume_times=1)
    planted.change(place, at_ms=back.at_ms + 400)
    return RETRIED_EARLY


def a_dead_letter_before_the_last_try(planted: PlantedConsumers) -> str:
    del planted.lines[planted.find(Seen, "retried-000002", reconsume_times=2)]
    return DEAD_EARLY


def a_dead_letter_of_a_message_that_was_handled(planted: PlantedConsumers) -> str:
    planted.lines.append(
        DeadLetter(group="retrying", message_id="retried-000001", at_ms=planted.now())
    )
    return DEAD_EARLY


def a_member_that_gave_up(planted: PlantedConsumers) -> str:
    planted.lines.append(
        Ended(group="first", member="first-1", topic=PLAIN, reason="x", at_ms=planted.now())
    )
    return MEMBER_ENDED


PLANTS: tuple[Callable[[PlantedConsumers], str], ...] = (
    an_offset_that_passes_a_message,
    a_message_that_a_group_never_got,
    two_messages_in_the_wrong_order,
    another_message_at_a_place_that_was_read,
    a_message_that_nobody_sent,
    a_message_with_another_body,
    a_message_in_another_topic,
    a_dead_letter_of_nobody,
    a_message_that_is_stored_twice,
    a_transaction_that_ended_twice,
    a_message_before_its_time,
    a_transaction_that_was_rolled_back_and_is_seen,
    a_transaction_that_is_seen_before_it_is_committed,
    a_message_that_comes_again_too_soon,
    a_dead_letter_before_the_last_try,
    a_dead_letter_of_a_message_that_was_handled,
    a_member_that_gave_up,
)
"""Each plants its fault and returns the rule that it breaks."""


def forgotten_by_a_group(planted: PlantedConsumers) -> str:
    """And its offset says so, too."""
    del planted.lines[planted.find(Seen, "delayed-000005", group="first") :]
    return "not handled by first"


def a_committed_transaction_that_nobody_sees(planted: PlantedConsumers) -> str:
    del planted.lines[planted.find(Seen, "transaction-000003")]
    planted.lines = [line for line in planted.lines if not isinstance(line, Committed)]
    return "not handled by first"


def a_transaction_that_no_broker_asks_about(planted: PlantedConsumers) -> str:
    del planted.lines[planted.find(Decided, "transaction-000002", was_asked=True)]
    del planted.lines[planted.find(Seen, "transaction-000002")]
    planted.lines = [line for line in planted.lines if not isinstance(line, Committed)]
    return "transactions that no broker asked about"


def a_failed_message_that_does_not_come_again(planted: PlantedConsumers) -> str:
    del planted.lines[planted.find(Seen, "retried-000004", reconsume_times=1)]
    return "not handled by retrying"


def a_dead_letter_that_is_nowhere(planted: PlantedConsumers) -> str:
    del planted.lines[planted.find(DeadLetter, "retried-000005")]
    return "not handled by retrying"


def a_send_without_an_answer(planted: PlantedConsumers) -> str:
    sent = Sent(message_id="plain-000099", kind=Kind.PLAIN, topic=PLAIN, at_ms=planted.now())
    planted.lines.append(sent)
    return "sends in flight"


OWED: tuple[Callable[[PlantedConsumers], str], ...] = (
    forgotten_by_a_group,
    a_committed_transaction_that_nobody_sees,
    a_transaction_that_no_broker_asks_about,
    a_failed_message_that_does_not_come_again,
    a_dead_letter_that_is_nowhere,
    a_send_without_an_answer,
)
"""Each takes something away that comes sooner or later, and returns what is owed then."""


def judged_promises(
    *plants: Callable[[PlantedConsumers], str],
    not_promised: Mapping[str, str] = MappingProxyType({}),
) -> Promises:
    """What is known after a ledger with these faults."""
    planted = PlantedConsumers()
    for plant in plants:
        plant(planted)
    promises = Promises(GROUPS, not_promised=not_promised)
    for line in planted.lines:
        promises.take(line)
    return promises
