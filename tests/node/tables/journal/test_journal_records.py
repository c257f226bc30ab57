from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.tables.deleted import Deleted
from node.tables.journal.journal_records import (
    JOURNAL_FORMAT,
    GroupTables,
    JournalFormat,
    JournalFormatError,
    encode_journal_record,
)
from node.tables.node_table import Replicated
from node.tables.replicated_deliveries import (
    DelayPart,
    DelayProgress,
    TimerProgress,
    TimersPart,
)
from node.tables.replicated_groups import GroupsChanged, GroupsPart
from node.tables.replicated_modes import ModesChanged
from node.tables.replicated_offsets import OffsetsCommitted, OffsetsPart
from node.tables.replicated_pop import DeliveriesChanged
from node.tables.replicated_quotas import QuotasChanged
from node.tables.replicated_topics import TopicsChanged, TopicsPart
from node.tables.replicated_users import AclsChanged, UsersChanged, UsersDeleted
from node.tables.table_part import BASE_FORMAT_VERSION
from store.delayed.timer_place import TimerPlace
from tandem.wire.feature_level import LEVEL_MAX, feature_level
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.tables.journal.journal_world import (
    delay_of,
    offsets_of,
    snapshot_part,
    tables_of,
    topic,
    topics_of,
)


def group(name: str, retries: int = 16) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(name, retry_max_times=retries)


names = st.text("abc", min_size=1, max_size=3)
numbers = st.integers(0, 20)
offsets_by_key = st.dictionaries(names, st.dictionaries(numbers, numbers), max_size=4)
records = st.one_of(
    st.lists(st.builds(topic, names, st.integers(1, 9)), max_size=3).map(TopicsChanged),
    offsets_by_key.map(OffsetsCommitted),
    st.dictionaries(st.integers(1, 18), numbers, max_size=3).map(DelayProgress),
    st.builds(
        GroupsChanged,
        st.lists(st.builds(group, names, numbers), max_size=3),
        st.dictionaries(names, st.dictionaries(names, numbers, max_size=2), max_size=2),
    ),
    st.builds(Deleted, *[st.lists(names, max_size=2)] * 3),
    st.builds(TimerPlace, numbers, numbers, numbers, numbers).map(TimerProgress),
)


@given(records)
def test_a_record_comes_back_as_it_was_written(record: msgspec.Struct) -> None:
    assert JOURNAL_FORMAT.decode_record(encode_journal_record(record)) == record


@given(st.binary(max_size=60))
def test_any_other_bytes_are_told_as_another_versions(body: bytes) -> None:
    with pytest.raises(JournalFormatError, match="run the version of the other nodes"):
        JOURNAL_FORMAT.decode_record(body)


def test_a_record_of_a_newer_version_is_not_guessed_at() -> None:
    body = encode_journal_record(DelayProgress({1: 2}, version=JOURNAL_FORMAT.version + 1))
    with pytest.raises(JournalFormatError):
        JOURNAL_FORMAT.decode_record(body)


def test_records_set_what_they_name_and_leave_the_rest() -> None:
    tables = GroupTables()
    tables.apply(TopicsChanged([topic("A"), topic("B")]))
    tables.apply(TopicsChanged([topic("A", 8)]))
    tables.apply(OffsetsCommitted({"A@g": {0: 1, 1: 5}}))
    tables.apply(OffsetsCommitted({"A@g": {0: 2}, "B@g": {3: 3}}))
    tables.apply(DelayProgress({1: 7}))
    assert topics_of(tables) == {"A": topic("A", 8), "B": topic("B")}
    assert offsets_of(tables) == {"A@g": {0: 2, 1: 5}, "B@g": {3: 3}}
    assert delay_of(tables) == {1: 7}


def test_groups_and_what_they_may_not_do_are_set_by_name() -> None:
    tables = GroupTables()
    tables.apply(GroupsChanged([group("g"), group("h")], {"g": {"T": 1}, "h": {"T": 3}}))
    tables.apply(GroupsChanged([group("g", 3)], {"h": {}}))
    assert tables.of(GroupsPart).groups == {"g": group("g", 3), "h": group("h")}
    assert tables.of(GroupsPart).forbidden == {"g": {"T": 1}}


def test_what_is_deleted_takes_its_offsets_with_it() -> None:
    tables = GroupTables()
    tables.apply(TopicsChanged([topic("A"), topic("B")]))
    tables.apply(GroupsChanged([group("g"), group("h")], {"g": {"T": 1}}))
    tables.apply(OffsetsCommitted({f"{t}@{g}": {0: 1} for t in "AB" for g in "gh"}))
    copy = tables.copy()
    tables.apply(Deleted(topics=["A", "unknown"]))
    assert set(topics_of(tables)) == {"B"}
    assert set(offsets_of(tables)) == {"B@g", "B@h"}
    tables.apply(Deleted(groups=["g"]))
    assert (set(tables.of(GroupsPart).groups), tables.of(GroupsPart).forbidden) == ({"h"}, {})
    assert set(offsets_of(tables)) == {"B@g", "B@h"}
    tables.apply(Deleted(offsets_of_groups=["g"]))
    assert set(offsets_of(tables)) == {"B@h"}
    assert (len(topics_of(copy)), len(offsets_of(copy))) == (2, 4)
    assert len(copy.of(GroupsPart).groups) == 2


def test_an_older_version_does_not_pass_over_what_it_does_not_know() -> None:
    newer: tuple[Any, ...] = (GroupsChanged([]), Deleted(), snapshot_part(0, 1))
    for record in newer:
        assert record.version == BASE_FORMAT_VERSION
    for record in (UsersChanged([]), UsersDeleted([]), AclsChanged({})):
        assert record.version == 3
    assert QuotasChanged({}).version == 4
    for of_pop in (DeliveriesChanged([]), ModesChanged({})):
        assert of_pop.version == 5
    assert JOURNAL_FORMAT.version == feature_level(LEVEL_MAX).journal
    for known in (TopicsChanged([]), OffsetsCommitted({}), DelayProgress({})):
        assert known.version == 1


@given(st.lists(records, max_size=12), st.integers(200, 2000))
def test_a_snapshot_in_parts_of_any_size_replaces_everything(
    history: list[msgspec.Struct], bytes_max: int
) -> None:
    tables = GroupTables()
    for record in history:
        tables.apply(record)
    other = tables_of(
        TopicsPart({"old": topic("old")}),
        OffsetsPart({"old@g": {0: 9}}),
        DelayPart({4: 4}, 7),
        GroupsPart({"old": group("old")}, {"old": {"T": 1}}),
        TimersPart(TimerPlace(1, 1, 1, 1), 9),
    )
    parts = tables.snapshot(bytes_max)
    outcomes = [other.apply(part) for part in parts]
    assert outcomes == [*[False] * (len(parts) - 1), True]
    assert other.content() == tables.content()


def test_the_parts_of_a_large_snapshot_stay_below_the_limit() -> None:
    tables = tables_of(TopicsPart({f"T{n}": topic(f"T{n}") for n in range(100)}))
    tables.apply(OffsetsCommitted({f"T{n}@g": {0: n} for n in range(100)}))
    parts = tables.snapshot(2_000)
    assert len(parts) > 5
    assert max(len(encode_journal_record(part)) for part in parts) <= 2_000


def test_a_first_part_with_much_delay_progress_stays_below_the_limit_too() -> None:
    tables = tables_of(
        TopicsPart({f"T{number}": topic(f"T{number}") for number in range(50)}),
        DelayPart(dict.fromkeys(range(100), 10**15)),
    )
    parts = tables.snapshot(4000)
    assert len(parts) > 2
    assert max(len(encode_journal_record(part)) for part in parts) <= 4000


def test_a_snapshot_that_was_not_finished_means_nothing() -> None:
    tables = tables_of(TopicsPart({"A": topic("A")}))
    first, last = snapshot_part(0, 2, [topic("B")]), snapshot_part(1, 2, [])
    inside = []
    for record in (first, DelayProgress({1: 1})):
        tables.apply(record)
        inside.append(tables.is_inside_snapshot)
    assert inside == [True, False]
    assert not tables.apply(last)
    assert topics_of(tables) == {"A": topic("A")}


def test_a_snapshot_begins_again_with_each_first_part() -> None:
    tables = tables_of(TopicsPart({"A": topic("A")}))
    tables.apply(snapshot_part(0, 2, [topic("B")]))
    tables.apply(snapshot_part(0, 2, [topic("C")]))
    assert tables.apply(snapshot_part(1, 2, [topic("D")], delay={1: 1}))
    assert set(topics_of(tables)) == {"C", "D"}


@pytest.mark.parametrize("parts", [(0, 2, 1, 2), (0, 1, 1), (0, 1, 1, 2), (1, 2), (0, 2)])
def test_parts_that_do_not_follow_one_another_mean_nothing(parts: tuple[int, ...]) -> None:
    tables = tables_of(TopicsPart({"T": topic("T")}))
    for part in parts:
        assert not tables.apply(snapshot_part(part, 3, [topic(f"P{part}")]))
    assert set(topics_of(tables)) == {"T"}


def test_the_place_of_the_timers_is_the_last_one_written_and_part_of_a_snapshot() -> None:
    tables = GroupTables()
    tables.apply(TimerProgress(TimerPlace(1, 2, 3000, 0)))
    tables.apply(TimerProgress(TimerPlace(2, 4, 5000, 1)))
    anew = tables_of(TimersPart(TimerPlace(9, 9, 9, 9)))
    for part in tables.snapshot(4000):
        anew.apply(part)
    assert tables.of(TimersPart).timers == anew.of(TimersPart).timers == TimerPlace(2, 4, 5000, 1)


def test_a_copy_changes_on_its_own() -> None:
    tables = tables_of(
        TopicsPart({"A": topic("A")}), OffsetsPart({"A@g": {0: 1}}), DelayPart({1: 1})
    )
    copy = tables.copy()
    copy.apply(OffsetsCommitted({"A@g": {0: 2}}))
    copy.apply(DelayProgress({1: 2}))
    assert offsets_of(tables) == {"A@g": {0: 1}}
    assert delay_of(tables) == {1: 1}


def test_the_form_on_disk_is_what_other_versions_have_to_read() -> None:
    body = encode_journal_record(OffsetsCommitted({"T@g": {0: 5}}))
    assert msgspec.json.decode(body) == {
        "type": "offsets",
        "offsets": {"T@g": {"0": 5}},
        "version": 1,
    }


def test_a_part_of_a_snapshot_is_byte_for_byte_what_older_versions_wrote() -> None:
    tables = tables_of(
        TopicsPart({"A": topic("A")}),
        OffsetsPart({"A@g": {0: 1, 3: 5}}),
        DelayPart({1: 7}, 70),
        GroupsPart({}, {"g": {"A": 1}}),
        TimersPart(TimerPlace(1, 2, 3000, 4), 80),
    )
    assert [encode_journal_record(part) for part in tables.snapshot(5000)] == [
        b'{"type":"snapshot","part":0,"parts":1,"topics":[{"topicName":"A","readQueueNums":4,'
        b'"writeQueueNums":4,"perm":6,"topicFilterType":"SINGLE_TAG","topicSysFlag":0,'
        b'"order":false,"attributes":{}}],"offsets":{"A@g":{"0":1,"3":5}},"delay":{"1":7},'
        b'"groups":[],"forbidden":{"g":{"A":1}},"timers":{"first_waiting":1,"looked_at":2,'
        b'"slot_ms":3000,"done_in_slot":4},"delay_at":70,"timers_at":80,"version":2}'
    ]


@pytest.mark.parametrize("which", ["record", "snapshot"])
def test_a_table_that_this_version_does_not_know_is_not_passed_over(which: str) -> None:
    body = {
        "record": b'{"type":"quotas","quotas":{"a":1},"version":2}',
        "snapshot": encode_journal_record(snapshot_part(0, 1))[:-1] + b',"quotas":{"a":1}}',
    }[which]
    with pytest.raises(JournalFormatError):
        JOURNAL_FORMAT.decode_record(body)


def test_two_tables_of_one_name_are_an_error_at_once() -> None:
    class Twice(TopicsPart):
        pass

    with pytest.raises(ValueError, match="topics"):
        JournalFormat([Replicated(TopicsPart), Replicated(Twice)])


def test_places_in_the_log_are_left_out_and_the_rest_is_kept() -> None:
    tables = tables_of(
        TopicsPart({"A": topic("A")}),
        OffsetsPart({"A@g": {0: 1}}),
        DelayPart({1: 1}, 5),
        TimersPart(TimerPlace(1, 1, 1, 1), 6),
    )
    left = tables.without_places()
    assert left.content() == tables_of(TopicsPart({"A": topic("A")})).content()
