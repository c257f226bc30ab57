"""Each promise to consumers has faults planted against it: they are found, and nothing else is."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest

from tandem.drill.consumers.lines import Answered, Committed, Place, Seen
from tandem.drill.consumers.promises import (
    CHANGED,
    EXCEPTIONS,
    OTHER_RETRIES,
    OWED_DELAYS,
    OWED_PLAIN,
    OWED_RETRIES,
    OWED_TRANSACTIONS,
    PREFIX,
    REPEATED_DELAYS,
    REPEATED_TRANSACTIONS,
    RULES,
    ConsumerSummary,
    Promises,
)
from tests.tandem.drill.consumers.planted_consumers import (
    FIRST,
    GROUPS,
    MESSAGES,
    OWED,
    PLAIN,
    PLANTS,
    WAITING,
    PlantedConsumers,
    a_committed_transaction_that_nobody_sees,
    a_dead_letter_before_the_last_try,
    a_dead_letter_of_nobody,
    a_dead_letter_that_is_nowhere,
    a_failed_message_that_does_not_come_again,
    a_message_before_its_time,
    a_message_that_comes_again_too_soon,
    a_message_that_nobody_sent,
    a_send_without_an_answer,
    a_transaction_that_ended_twice,
    a_transaction_that_no_broker_asks_about,
    forgotten_by_a_group,
    judged_promises,
)


def judged(
    planted: PlantedConsumers, not_promised: Mapping[str, str] = MappingProxyType({})
) -> ConsumerSummary:
    named = {PREFIX + name: why for name, why in not_promised.items()}
    promises = Promises(GROUPS, not_promised=named, rules={"consumers_strange": "its own rule"})
    for line in planted.lines:
        promises.take(line)
    return promises.summary()


def test_a_sound_ledger_breaks_nothing_and_owes_nothing() -> None:
    summary = judged(PlantedConsumers())

    assert summary.broken_counts == {}
    assert summary.left == {}
    assert summary.sent == summary.acknowledged
    assert sum(summary.acknowledged.values()) == 4 * MESSAGES
    assert summary.handled["ordered"] == MESSAGES
    assert (summary.dead_letters, summary.asked) == (2, 2)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[PlantedConsumers], str]) -> None:
    planted = PlantedConsumers()
    rule = plant(planted)

    summary = judged(planted)

    assert rule in summary.broken_counts
    assert summary.promises_broken >= 1
    assert summary.findings[0].rule in summary.broken_counts
    assert (f"consumers_{rule}", summary.broken_counts[rule]) in summary.broken()


def test_every_rule_has_a_fault_planted_against_it() -> None:
    assert {plant(PlantedConsumers()) for plant in PLANTS} == set(RULES)


@pytest.mark.parametrize("plant", OWED, ids=lambda plant: plant.__name__)
def test_what_has_not_come_yet_is_owed_and_not_broken(
    plant: Callable[[PlantedConsumers], str],
) -> None:
    planted = PlantedConsumers()
    owed = plant(planted)

    summary = judged(planted)

    assert owed in summary.left
    assert summary.promises_broken == 0


def test_what_was_not_acknowledged_is_owed_to_nobody() -> None:
    planted = PlantedConsumers()
    planted.change(planted.find(Answered, "plain-000005"), status="UNKNOWN")
    place = planted.find(Seen, "plain-000005", group="first")
    # From there on nobody has seen or committed anything of it.
    del planted.lines[place : place + 2]
    planted.lines = [line for line in planted.lines if not isinstance(line, Committed)]

    summary = judged(planted)

    assert (summary.left, summary.broken_counts) == ({}, {})


def test_a_message_that_comes_once_more_at_its_place_is_allowed() -> None:
    planted = PlantedConsumers()
    planted.lines.append(planted.lines[planted.find(Seen, "plain-000002", group="ordered")])

    summary = judged(planted)

    assert summary.seen_again == 1
    assert summary.broken_counts == {}


def test_a_message_that_was_sent_twice_may_be_there_twice() -> None:
    planted = PlantedConsumers()
    planted.change(planted.find(Answered, "plain-000002"), attempts=2)
    planted.see("first", "plain-000002", PLAIN)

    assert judged(planted).broken_counts == {}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_what_nobody_promised_is_counted_with_the_reason_and_breaks_nothing(
    plant: Callable[[PlantedConsumers], str],
) -> None:
    planted = PlantedConsumers()
    rule = plant(planted)
    broken = judged(planted).broken_counts

    summary = judged(planted, {rule: "why"})

    assert summary.not_promised_counts[rule] == broken[rule]
    assert summary.broken_counts == {name: n for name, n in broken.items() if name != rule}
    assert {(each.rule, each.reason) for each in summary.not_promised} == {(rule, "why")}


def test_a_broken_promise_is_said_with_the_rule_of_the_place() -> None:
    planted = PlantedConsumers()
    a_message_that_nobody_sent(planted)

    (found,) = judged(planted).findings

    assert found.reason == "its own rule"
    assert found.in_words().endswith("that nobody sent (its own rule)")


def test_kinds_that_may_be_repeated_are_told_from_the_others() -> None:
    planted = PlantedConsumers()
    planted.see(FIRST.name, "delayed-000001", WAITING)
    a_transaction_that_ended_twice(planted)
    planted.see(FIRST.name, "plain-000001", PLAIN)

    for name in (REPEATED_DELAYS, REPEATED_TRANSACTIONS):
        summary = judged(planted, {name: "why"})
        assert (summary.broken_counts, summary.not_promised_counts) == ({"repeated": 2}, {name: 1})


@pytest.mark.parametrize(
    "plant",
    [
        a_message_that_comes_again_too_soon,
        a_dead_letter_before_the_last_try,
        a_dead_letter_of_nobody,
    ],
)
def test_something_else_that_comes_again_may_be_no_broken_promise(
    plant: Callable[[PlantedConsumers], str],
) -> None:
    planted = PlantedConsumers()
    plant(planted)

    summary = judged(planted, {OTHER_RETRIES: "why"})

    assert (summary.promises_broken, summary.not_promised_counts) == (0, {OTHER_RETRIES: 1})


def test_what_comes_for_the_first_time_is_no_retry() -> None:
    planted = PlantedConsumers()
    a_message_that_nobody_sent(planted)

    assert judged(planted, {OTHER_RETRIES: "why"}).broken_counts == {"strange": 1}


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (a_committed_transaction_that_nobody_sees, OWED_TRANSACTIONS),
        (a_transaction_that_no_broker_asks_about, OWED_TRANSACTIONS),
        (a_failed_message_that_does_not_come_again, OWED_RETRIES),
        (a_dead_letter_that_is_nowhere, OWED_RETRIES),
    ],
)
def test_what_nobody_promised_to_come_is_not_owed(
    plant: Callable[[PlantedConsumers], str], name: str
) -> None:
    planted = PlantedConsumers()
    words = plant(planted)

    summary = judged(planted, {name: "why"})

    assert (summary.left, summary.not_promised_left) == ({}, {words: 1})
    (found,) = summary.not_promised
    assert (found.rule, found.reason) == (name, "why")


def test_each_kind_is_owed_by_itself() -> None:
    planted = PlantedConsumers()
    forgotten_by_a_group(planted)
    every = {OWED_PLAIN, OWED_DELAYS, OWED_TRANSACTIONS, OWED_RETRIES}

    left = judged(planted).left["not handled by first"]
    by_kind = [
        judged(planted, dict.fromkeys(every - {name}, "why")).left.get("not handled by first", 0)
        for name in every
    ]

    assert sum(by_kind) == left
    assert judged(planted, dict.fromkeys(every, "why")).left == {}


def test_a_send_without_an_answer_is_waited_for_whatever_is_promised() -> None:
    planted = PlantedConsumers()
    words = a_send_without_an_answer(planted)

    assert judged(planted, dict.fromkeys(EXCEPTIONS, "why")).left == {words: 1}


def test_a_copy_that_is_seen_before_the_answer_is_judged_with_it() -> None:
    planted = PlantedConsumers()
    answered = planted.lines.pop(planted.find(Answered, "plain-000005"))
    planted.see("first", "plain-000005", PLAIN)
    planted.lines.append(answered)

    assert judged(planted).promises_broken == 1


def test_what_waits_may_be_early_by_as_much_as_a_clock_was_wrong_and_no_more() -> None:
    planted = PlantedConsumers()
    a_message_before_its_time(planted)

    # It is 100 ms early, and 50 ms are nothing.
    for allowed_ms, count in ((60, 0), (-60, 0), (40, 1), (-40, 1)):
        promises = Promises(GROUPS)
        promises.allow_early(allowed_ms)
        promises.allow_early(1)
        promises.allow_early(-1)
        for line in planted.lines:
            promises.take(line)
        assert promises.summary().promises_broken == count


def a_log(planted: PlantedConsumers) -> dict[Place, str]:
    """The messages where consumers were handed them."""
    seen = [line for line in planted.lines if isinstance(line, Seen) and not line.reconsume_times]
    return {
        (each.topic, each.broker_name, each.queue_id, each.queue_offset): each.message_id
        for each in seen
    }


def test_a_log_that_has_what_was_read_breaks_nothing() -> None:
    planted = PlantedConsumers()
    promises = judged_promises()

    promises.compare_with_log(a_log(planted))
    promises.compare_with_log({})  # what is not there any more was deleted, perhaps

    assert promises.summary().broken_counts == {}


def test_a_log_that_has_another_message_where_one_was_read_breaks_a_promise_at_each_place() -> None:
    log = a_log(PlantedConsumers())
    promises = judged_promises()

    promises.compare_with_log(log | {(PLAIN, "b", 0, 2): "plain-000099", (PLAIN, "b", 0, 3): ""})

    summary = promises.summary()
    assert summary.broken_counts == {CHANGED: 2}
    assert summary.findings[0].text == (
        "plain of b, queue 0 offset 2: plain-000002 was read, and the log has plain-000099"
    )


def test_it_says_to_which_groups_the_message_there_never_came() -> None:
    planted = PlantedConsumers()
    planted.change(planted.find(Seen, "plain-000005", group="first"), message_id="plain-000004")
    promises = Promises(GROUPS)
    for line in planted.lines:
        promises.take(line)

    promises.compare_with_log({(PLAIN, "b", 0, 5): "plain-000005"})

    assert "the log has plain-000005, which never came to first" in promises.findings[-1].text


def test_where_reads_are_not_promised_a_log_that_has_another_message_is_counted_alone() -> None:
    planted = PlantedConsumers()
    promises = judged_promises(not_promised={PREFIX + CHANGED: "why"})

    promises.compare_with_log(a_log(planted) | {(PLAIN, "b", 0, 2): "plain-000099"})

    summary = promises.summary()
    assert (summary.broken_counts, summary.not_promised_counts) == ({}, {CHANGED: 1})
