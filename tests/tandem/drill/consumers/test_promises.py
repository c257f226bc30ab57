"""Each promise to consumers has faults planted against it: they are found, and nothing else is."""

from collections.abc import Callable

import pytest

from tandem.drill.consumers.lines import Answered, Committed, Seen
from tandem.drill.consumers.promises import RULES, ConsumerSummary, Promises
from tests.tandem.drill.consumers.planted_consumers import (
    FIRST,
    GROUPS,
    MESSAGES,
    OWED,
    PLAIN,
    PLANTS,
    WAITING,
    PlantedConsumers,
    a_message_before_its_time,
)


def judged(planted: PlantedConsumers, *, repeats_delays: bool = False) -> ConsumerSummary:
    promises = Promises(GROUPS, repeats_delays=repeats_delays)
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


@pytest.mark.parametrize(("repeats_delays", "count"), [(True, 0), (False, 1)])
def test_a_classic_group_may_repeat_what_waited(*, repeats_delays: bool, count: int) -> None:
    planted = PlantedConsumers()
    planted.see(FIRST.name, "delayed-000001", WAITING)

    assert judged(planted, repeats_delays=repeats_delays).promises_broken == count


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
