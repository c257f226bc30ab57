from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.tables.journal.journal_records import (
    FIRST_FORMAT_VERSION,
    FORMAT_VERSION,
    DelayProgress,
    Deleted,
    GroupsChanged,
    GroupTables,
    JournalFormatError,
    JournalRecord,
    OffsetsCommitted,
    SnapshotPart,
    TimerProgress,
    TopicsChanged,
    decode_journal_record,
    encode_journal_record,
    split_commits,
    split_groups,
    split_topics,
)
from store.delayed.timer_place import TimerPlace
from tandem.wire.request_headers import TopicConfig
from tandem.wire.subscription_group import SubscriptionGroupConfig


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


def group(name: str, retries: int = 16) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(name, retry_max_times=retries)


def content(tables: GroupTables) -> list[object]:
    return [
        tables.topics,
        tables.offsets,
        tables.delay,
        tables.groups,
        tables.forbidden,
        tables.timers,
    ]


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
def test_a_record_comes_back_as_it_was_written(record: JournalRecord) -> None:
    assert decode_journal_record(encode_journal_record(record)) == record


@given(st.binary(max_size=60))
def test_any_other_bytes_are_told_as_another_versions(body: bytes) -> None:
    with pytest.raises(JournalFormatError, match="run the version of the other nodes"):
        decode_journal_record(body)


def test_a_record_of_a_newer_version_is_not_guessed_at() -> None:
    body = encode_journal_record(DelayProgress({1: 2}, version=3))
    with pytest.raises(JournalFormatError, match="version 3"):
        decode_journal_record(body)


def test_records_set_what_they_name_and_leave_the_rest() -> None:
    tables = GroupTables()
    tables.apply(TopicsChanged([topic("A"), topic("B")]))
    tables.apply(TopicsChanged([topic("A", 8)]))
    tables.apply(OffsetsCommitted({"A@g": {0: 1, 1: 5}}))
    tables.apply(OffsetsCommitted({"A@g": {0: 2}, "B@g": {3: 3}}))
    tables.apply(DelayProgress({1: 7}))
    assert tables.topics == {"A": topic("A", 8), "B": topic("B")}
    assert tables.offsets == {"A@g": {0: 2, 1: 5}, "B@g": {3: 3}}
    assert tables.delay == {1: 7}


def test_groups_and_what_they_may_not_do_are_set_by_name() -> None:
    tables = GroupTables()
    tables.apply(GroupsChanged([group("g"), group("h")], {"g": {"T": 1}, "h": {"T": 3}}))
    tables.apply(GroupsChanged([group("g", 3)], {"h": {}}))
    assert tables.groups == {"g": group("g", 3), "h": group("h")}
    assert tables.forbidden == {"g": {"T": 1}}


def test_what_is_deleted_takes_its_offsets_with_it() -> None:
    tables = GroupTables()
    tables.apply(TopicsChanged([topic("A"), topic("B")]))
    tables.apply(GroupsChanged([group("g"), group("h")], {"g": {"T": 1}}))
    tables.apply(OffsetsCommitted({f"{t}@{g}": {0: 1} for t in "AB" for g in "gh"}))
    copy = tables.copy()
    tables.apply(Deleted(topics=["A", "unknown"]))
    assert set(tables.topics) == {"B"}
    assert set(tables.offsets) == {"B@g", "B@h"}
    tables.apply(Deleted(groups=["g"]))
    assert (set(tables.groups), tables.forbidden) == ({"h"}, {})
    assert set(tables.offsets) == {"B@g", "B@h"}
    tables.apply(Deleted(offsets_of_groups=["g"]))
    assert set(tables.offsets) == {"B@h"}
    assert (len(copy.topics), len(copy.offsets), len(copy.groups)) == (2, 4, 2)


def test_an_older_version_does_not_pass_over_what_it_does_not_know() -> None:
    for record in (GroupsChanged([]), Deleted(), SnapshotPart(0, 1, [], {}, {})):
        assert record.version == FORMAT_VERSION > FIRST_FORMAT_VERSION
    for known in (TopicsChanged([]), OffsetsCommitted({}), DelayProgress({})):
        assert known.version == FIRST_FORMAT_VERSION


@given(st.lists(records, max_size=12), st.integers(200, 2000))
def test_a_snapshot_in_parts_of_any_size_replaces_everything(
    history: list[JournalRecord], bytes_max: int
) -> None:
    tables = GroupTables()
    for record in history:
        tables.apply(record)
    other = GroupTables(
        {"old": topic("old")}, {"old@g": {0: 9}}, {4: 4}, {"old": group("old")}, {"old": {"T": 1}}
    )
    parts = tables.snapshot(bytes_max)
    outcomes = [other.apply(part) for part in parts]
    assert outcomes == [*[False] * (len(parts) - 1), True]
    assert content(other) == content(tables)


def test_the_parts_of_a_large_snapshot_stay_below_the_limit() -> None:
    tables = GroupTables({f"T{n}": topic(f"T{n}") for n in range(100)})
    tables.apply(OffsetsCommitted({f"T{n}@g": {0: n} for n in range(100)}))
    parts = tables.snapshot(2_000)
    assert len(parts) > 5
    assert max(len(encode_journal_record(part)) for part in parts) <= 2_000


def test_a_first_part_with_much_delay_progress_stays_below_the_limit_too() -> None:
    tables = GroupTables(
        {f"T{number}": topic(f"T{number}") for number in range(50)},
        delay=dict.fromkeys(range(100), 10**15),
    )
    parts = tables.snapshot(4000)
    assert len(parts) > 2
    assert max(len(encode_journal_record(part)) for part in parts) <= 4000


def test_changes_of_many_become_records_below_the_limit() -> None:
    topics = [topic(f"T{number}") for number in range(200)]
    groups = [SubscriptionGroupConfig(f"g{number}") for number in range(200)]
    offsets = {f"T{number}@g": {0: number} for number in range(200)}
    for limit in range(2000, 2300, 7):
        for records in (
            split_topics(topics, limit),
            split_groups(groups, limit),
            split_commits(offsets, limit),
        ):
            assert max(len(encode_journal_record(record)) for record in records) <= limit
    assert [each for record in split_topics(topics, 2000) for each in record.topics] == topics


def test_a_snapshot_that_was_not_finished_means_nothing() -> None:
    tables = GroupTables({"A": topic("A")})
    first, last = SnapshotPart(0, 2, [topic("B")], {}, {}), SnapshotPart(1, 2, [], {}, {})
    inside = []
    for record in (first, DelayProgress({1: 1})):
        tables.apply(record)
        inside.append(tables.is_inside_snapshot)
    assert inside == [True, False]
    assert not tables.apply(last)
    assert tables.topics == {"A": topic("A")}


def test_a_snapshot_begins_again_with_each_first_part() -> None:
    tables = GroupTables({"A": topic("A")})
    tables.apply(SnapshotPart(0, 2, [topic("B")], {}, {}))
    tables.apply(SnapshotPart(0, 2, [topic("C")], {}, {}))
    assert tables.apply(SnapshotPart(1, 2, [topic("D")], {}, {1: 1}))
    assert set(tables.topics) == {"C", "D"}


@pytest.mark.parametrize("parts", [(0, 2, 1, 2), (0, 1, 1), (0, 1, 1, 2), (1, 2), (0, 2)])
def test_parts_that_do_not_follow_one_another_mean_nothing(parts: tuple[int, ...]) -> None:
    tables = GroupTables({"T": topic("T")})
    for part in parts:
        assert not tables.apply(SnapshotPart(part, 3, [topic(f"P{part}")], {}, {}))
    assert set(tables.topics) == {"T"}


def test_the_place_of_the_timers_is_the_last_one_written_and_part_of_a_snapshot() -> None:
    tables = GroupTables()
    tables.apply(TimerProgress(TimerPlace(1, 2, 3000, 0)))
    tables.apply(TimerProgress(TimerPlace(2, 4, 5000, 1)))
    anew = GroupTables(timers=TimerPlace(9, 9, 9, 9))
    for part in tables.snapshot(4000):
        anew.apply(part)
    assert tables.timers == anew.timers == TimerPlace(2, 4, 5000, 1)


def test_a_copy_changes_on_its_own() -> None:
    tables = GroupTables({"A": topic("A")}, {"A@g": {0: 1}}, {1: 1})
    copy = tables.copy()
    copy.apply(OffsetsCommitted({"A@g": {0: 2}}))
    copy.apply(DelayProgress({1: 2}))
    assert tables.offsets == {"A@g": {0: 1}}
    assert tables.delay == {1: 1}


def test_the_form_on_disk_is_what_other_versions_have_to_read() -> None:
    body = encode_journal_record(OffsetsCommitted({"T@g": {0: 5}}))
    assert msgspec.json.decode(body) == {
        "type": "offsets",
        "offsets": {"T@g": {"0": 5}},
        "version": 1,
    }
