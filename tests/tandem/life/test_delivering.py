"""What a message is to a group, as a table of decisions."""

import pytest

from tandem.life.evidence import GroupAt, HalfEnd, QueueAt, TraceMark
from tandem.life.result import Kind, State
from tandem.wire.message import MessageExt
from tests.tandem.life.samples import STORED_MS, group, kinds, life, log, stored, the, why

RETRY_TOPIC = "%RETRY%g"
MESSAGE = stored(offset=5)
WAITS = stored(
    "SCHEDULE_TOPIC_XXXX",
    queue_id=2,
    at_ms=10,
    reconsume_times=1,
    properties={"REAL_TOPIC": RETRY_TOPIC, "DELAY": "3", "RETRY_TOPIC": "T"},
)
RETRY = stored(
    RETRY_TOPIC, 3, at_ms=10_020, reconsume_times=1, properties={"RETRY_TOPIC": "T", "DELAY": "3"}
)
WAITS_AGAIN = stored(
    "SCHEDULE_TOPIC_XXXX",
    queue_id=3,
    at_ms=10_030,
    reconsume_times=2,
    properties={"REAL_TOPIC": RETRY_TOPIC, "DELAY": "4", "RETRY_TOPIC": "T"},
)
DEAD = stored("%DLQ%g", at_ms=20_000, reconsume_times=16, properties={"RETRY_TOPIC": "T"})


@pytest.mark.parametrize(
    ("records", "progress", "state", "kind"),
    [
        ([MESSAGE], group("g", ("T", 0, 6)), State.CONSUMED, Kind.CONSUMED),
        ([MESSAGE], group("g", ("T", 0, 5)), State.NOT_YET, Kind.NOT_YET),
        ([MESSAGE], group("g", ("T", 0, 2)), State.NOT_YET, Kind.NOT_YET),
        ([MESSAGE], group("g", ("T", 1, 9)), State.NO_OFFSET, Kind.NO_OFFSET),
        (
            [MESSAGE],
            group("g", ("T", 0, 6), subscriptions={"T": "open || new"}),
            State.FILTERED,
            Kind.FILTERED,
        ),
        (
            [MESSAGE],
            group("g", ("T", 0, 6), subscriptions={"T": "open || paid"}),
            State.CONSUMED,
            Kind.CONSUMED,
        ),
        (
            [MESSAGE],
            group("g", ("T", 0, 6), subscriptions={"T": "a > 5 AND b = 'x'"}),
            State.CONSUMED,
            Kind.CONSUMED,
        ),
        ([MESSAGE], group("g", ("T", 0, 6), is_broadcasting=True), State.UNKNOWN, Kind.BROADCAST),
        ([MESSAGE, WAITS], group("g", ("T", 0, 6)), State.AGAIN, Kind.RETRY_WAITS),
        (
            [MESSAGE, WAITS, RETRY],
            group("g", ("T", 0, 6), (RETRY_TOPIC, 0, 3)),
            State.AGAIN,
            Kind.NOT_YET,
        ),
        (
            [MESSAGE, WAITS, RETRY],
            group("g", ("T", 0, 6), (RETRY_TOPIC, 0, 4)),
            State.CONSUMED,
            Kind.CONSUMED,
        ),
        (
            [MESSAGE, WAITS, RETRY, WAITS_AGAIN],
            group("g", ("T", 0, 6), (RETRY_TOPIC, 0, 4)),
            State.AGAIN,
            Kind.RETRY_WAITS,
        ),
        ([MESSAGE, WAITS, RETRY, DEAD], group("g", ("T", 0, 6)), State.DEAD, Kind.DEAD),
        ([DEAD], group("g", ("T", 0, 6)), State.DEAD, Kind.DEAD),
    ],
)
def test_what_a_message_is_to_a_group(
    records: list[MessageExt], progress: GroupAt, state: State, kind: Kind
) -> None:
    found = life(*records, groups=[progress])
    (one,) = found.groups
    assert (one.group, one.state) == ("g", state)
    assert kind in kinds(found)
    assert the(found, kind).group == "g"
    assert the(found, kind).evidence


def test_how_many_messages_come_first_is_counted_and_who_reads_the_queue_is_named() -> None:
    queue = QueueAt(topic="T", queue_id=0, committed=2, broker="b", pulled=9, client_id="client-7")
    progress = GroupAt(group="g", source="s", queues=(queue,), members_count=2)
    found = life(MESSAGE, groups=[progress])
    assert (found.groups[0].before_it, found.groups[0].committed) == (3, 2)
    text = the(found, Kind.NOT_YET).text
    assert "client-7" in text
    assert "fetched" in text


def test_that_nobody_of_a_group_is_online_is_said() -> None:
    found = life(MESSAGE, groups=[group("g", ("T", 0, 2), members_count=0)])
    assert "No member of the group is online" in the(found, Kind.NOT_YET).text


def test_the_offset_of_another_broker_says_nothing() -> None:
    there = QueueAt(topic="T", queue_id=0, committed=99, broker="other")
    found = life(MESSAGE, groups=[GroupAt(group="g", source="s", queues=(there,))])
    assert found.groups[0].state is State.NO_OFFSET


def test_the_offsets_of_directories_count_for_the_records_of_those_directories() -> None:
    here = QueueAt(topic="T", queue_id=0, committed=6, node="n1")
    elsewhere = QueueAt(topic="T", queue_id=0, committed=1, node="n9")
    groups = [GroupAt(group="g", source="s", queues=(elsewhere, here))]
    assert life(MESSAGE, groups=groups).groups[0].state is State.CONSUMED


def test_a_retry_is_due_when_its_level_says() -> None:
    found = life(MESSAGE, WAITS, groups=[group("g", ("T", 0, 6))])
    assert the(found, Kind.RETRY_WAITS).due_ms == STORED_MS + 10 + 10_000
    assert found.groups[0].due_ms == STORED_MS + 10 + 10_000


def test_each_of_several_groups_has_its_own_state() -> None:
    groups = [group("a", ("T", 0, 6)), group("b", ("T", 0, 0)), group("c", ("Other", 0, 9))]
    states = {each.group: each.state for each in life(MESSAGE, groups=groups).groups}
    assert states == {"a": State.CONSUMED, "b": State.NOT_YET}


def test_a_topic_that_nobody_reads_is_said_to_be_one_only_if_that_is_known() -> None:
    assert Kind.NO_READERS in kinds(life(MESSAGE))
    unknown = life(MESSAGE, readers_known=set())
    assert Kind.NO_READERS not in kinds(unknown)
    assert any("which groups read" in gap.what for gap in unknown.unknown)


def test_consumed_is_not_taken_for_handled_unless_a_trace_says_so() -> None:
    groups = [group("g", ("T", 0, 6))]
    assert any("handled" in gap.what for gap in life(MESSAGE, groups=groups).unknown)
    mark = TraceMark(what="handled", at_ms=STORED_MS + 9, group="g", source="s", success=True)
    traced = life(MESSAGE, groups=groups, traces=[mark])
    assert not any("handled" in gap.what for gap in traced.unknown)
    assert the(traced, Kind.TRACED).group == "g"


def test_a_half_has_no_groups() -> None:
    half = stored("RMQ_SYS_TRANS_HALF_TOPIC", 4, properties={"REAL_TOPIC": "T"})
    end = HalfEnd(broker="b", node="", half_queue_offset=4, at_ms=STORED_MS + 5, source="op")
    found = life(half, ends=[end], groups=[group("g", ("T", 0, 6))])
    assert found.groups == []


def test_a_message_without_tags_does_not_fit_a_filter() -> None:
    untagged = stored(offset=5, properties={"TAGS": ""})
    found = why(untagged, groups=[group("g", ("T", 0, 6), subscriptions={"T": "a"})], nodes=[log()])
    assert found.lives[0].groups[0].state is State.FILTERED
