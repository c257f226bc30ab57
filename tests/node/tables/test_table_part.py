import msgspec

from node.tables.deleted import Deleted
from node.tables.replicated_groups import GroupsChanged, GroupsPart
from node.tables.replicated_offsets import OffsetsCommitted, OffsetsPart
from node.tables.replicated_topics import TopicsChanged, TopicsPart
from node.tables.table_part import Field, FieldKind, TablePart, split_change, split_content
from tandem.wire.request_headers import TopicConfig
from tandem.wire.subscription_group import SubscriptionGroupConfig


def test_changes_of_many_become_records_below_the_limit() -> None:
    topics = [TopicConfig(f"T{number}") for number in range(200)]
    groups = [SubscriptionGroupConfig(f"g{number}") for number in range(200)]
    offsets = {f"T{number}@g": {0: number} for number in range(200)}
    changes: tuple[tuple[type[TablePart], msgspec.Struct], ...] = (
        (TopicsPart, TopicsChanged(topics)),
        (GroupsPart, GroupsChanged(groups, {f"g{number}": {"T": 1} for number in range(200)})),
        (OffsetsPart, OffsetsCommitted(offsets)),
    )
    for limit in range(2000, 2300, 7):
        for kind, change in changes:
            records = list(split_change(kind, change, limit))
            assert len(records) > 1
            assert max(len(msgspec.json.encode(record)) for record in records) <= limit
            whole, again = kind(), kind()
            whole.apply(change)
            for record in records:
                again.apply(record)
            assert again.content() == whole.content()


def test_a_change_that_fits_stays_one_record() -> None:
    change = GroupsChanged([SubscriptionGroupConfig("g")], {"g": {}})
    assert list(split_change(GroupsPart, change, 2000)) == [change]


def test_a_record_of_several_tables_is_not_cut() -> None:
    record = Deleted([f"T{number}" for number in range(500)])
    assert list(split_change(TopicsPart, record, 100)) == [record]


def test_nothing_is_one_piece_and_a_large_entry_is_one_by_itself() -> None:
    fields = (
        Field("rows", list[str], FieldKind.ROWS),
        Field("mark", int, FieldKind.WHOLE, 0),
        Field("by_name", dict[str, int], FieldKind.MAP),
    )
    nothing = {"rows": [], "mark": 7, "by_name": {}}
    assert list(split_content(fields, nothing, 10)) == [{"rows": [], "mark": 0, "by_name": {}}]
    some = {"rows": ["x" * 50, "a", "b"], "mark": 7, "by_name": {"c": 1}}
    assert list(split_content(fields, some, 10)) == [
        {"rows": ["x" * 50], "mark": 0, "by_name": {}},
        {"rows": ["a", "b"], "mark": 0, "by_name": {}},
        {"rows": [], "mark": 0, "by_name": {"c": 1}},
    ]
