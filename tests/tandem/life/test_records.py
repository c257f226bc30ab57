import msgspec
import pytest

from tandem.life.evidence import Held
from tandem.life.records import Role, records_of, role_of
from tandem.wire.message import Host
from tests.tandem.life.samples import copy, cut, stored


@pytest.mark.parametrize(
    ("topic", "role"),
    [
        ("T", Role.ORIGINAL),
        ("%RETRY%g", Role.RETRY),
        ("%DLQ%g", Role.DEAD),
        ("RMQ_SYS_TRANS_HALF_TOPIC", Role.HALF),
        ("TRANS_CHECK_MAX_TIME_TOPIC", Role.GIVEN_UP),
        ("SCHEDULE_TOPIC_XXXX", Role.DELAYED),
        ("rmq_sys_wheel_timer", Role.TIMER),
    ],
)
def test_the_topic_says_what_a_record_is(topic: str, role: Role) -> None:
    assert role_of(topic) is role


def test_copies_of_a_record_are_one_and_others_are_not() -> None:
    message, later = stored(), stored(offset=1, at_ms=5)
    first, second = records_of(
        [copy(later), copy(message, "n1"), copy(message, "n2"), copy(message, "n2")]
    )
    assert (first.message, first.nodes) == (message, ["n1", "n2"])
    assert (second.message, second.nodes) == (later, ["n1"])


def test_records_of_two_groups_at_one_place_are_two() -> None:
    there = msgspec.structs.replace(stored(), store_host=Host("10.0.0.9", 10_911))
    assert len(records_of([copy(stored()), copy(there, "n9", broker="c")])) == 2


def test_a_record_that_was_cut_off_is_in_no_log() -> None:
    (record,) = records_of([cut(stored())])
    assert not record.is_in_log
    assert record.nodes == []
    (record,) = records_of([cut(stored(), "n1"), copy(stored(), "n2")])
    assert record.is_in_log
    assert record.sources == ["n2 says", "n1 says"]
    assert record.copies[0].held is Held.CUT


def test_a_record_that_waits_says_for_whom() -> None:
    waits = stored("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "%RETRY%g"})
    (record,) = records_of([copy(waits)])
    assert (record.real_topic, record.group, record.end) == ("%RETRY%g", "g", 1_100)


def test_a_retry_says_where_its_message_was_sent_to() -> None:
    letter = stored("%DLQ%g", properties={"RETRY_TOPIC": "T"})
    silent = stored("%DLQ%g", at_ms=5)
    half = stored("RMQ_SYS_TRANS_HALF_TOPIC", at_ms=9, properties={"REAL_TOPIC": "T"})
    found = records_of([copy(letter), copy(silent), copy(half)])
    assert [each.origin_topic for each in found] == ["T", "", "T"]


@pytest.mark.parametrize("name", ["%RETRY%g+T", "%RETRY%g_T"])
def test_what_comes_back_to_a_group_that_pops_is_its_retry(name: str) -> None:
    popped = {"1ST_POP_TIME": "1"}
    original, retry = stored(), stored(name, at_ms=5, properties=popped)
    _, record = records_of([copy(original), copy(retry)])
    assert (record.role, record.group, record.origin_topic) == (Role.RETRY, "g", "T")
    (alone,) = records_of([copy(retry)], {"T"})
    assert (alone.group, alone.origin_topic) == ("g", "T")
    waits = stored("rmq_sys_wheel_timer", properties=popped | {"REAL_TOPIC": name})
    _, record = records_of([copy(original), copy(waits)])
    assert (record.group, record.origin_topic) == ("g", "T")


def test_the_topic_of_a_message_counts_before_others() -> None:
    retry = stored("%RETRY%a_b_T", at_ms=5, properties={"1ST_POP_TIME": "1"})
    _, record = records_of([copy(stored("T")), copy(retry)], {"b_T"})
    assert (record.group, record.origin_topic) == ("a_b", "T")


def test_a_dead_letter_of_a_group_that_pops_says_the_topic_behind_its_retries() -> None:
    (letter,) = records_of([copy(stored("%DLQ%g", properties={"RETRY_TOPIC": "%RETRY%g+T"}))])
    assert (letter.group, letter.origin_topic) == ("g", "T")


def test_an_ordinary_record_that_claims_to_wait_is_not_believed() -> None:
    (record,) = records_of([copy(stored("T", properties={"REAL_TOPIC": "%RETRY%g"}))])
    assert (record.real_topic, record.group) == ("T", "")
