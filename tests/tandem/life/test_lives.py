"""Which lives are told, in which order, and what comes first."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tandem.life.evidence import Gap
from tandem.life.lives import fits
from tandem.life.result import Kind, State, Why
from tandem.wire.message import MessageExt
from tests.tandem.life.samples import KEY, copy, fenced, group, life, log, stored, the, why

MESSAGE = stored(offset=5)


def other(key: str, at_ms: int) -> MessageExt:
    return stored(offset=at_ms, at_ms=at_ms, properties={"UNIQ_KEY": key})


def test_a_message_is_asked_for_by_unique_key_offset_id_or_key() -> None:
    for text in (KEY, MESSAGE.offset_msg_id, MESSAGE.offset_msg_id.lower(), "k1", "k2"):
        assert fits(copy(MESSAGE), text)
    for text in ("k", "k1 k2", KEY.lower(), ""):
        assert not fits(copy(MESSAGE), text)


def test_each_message_with_a_key_has_a_life_the_oldest_first() -> None:
    found = why(other("B", 200), other("A", 100), message="k1")
    assert [each.id for each in found.lives] == ["A", "B"]


def test_retries_and_dead_letters_belong_to_the_life_of_their_message() -> None:
    retry = stored("%RETRY%g", at_ms=9, properties={"RETRY_TOPIC": "T"})
    (found,) = why(MESSAGE, retry).lives
    assert (found.id, found.topic) == (KEY, "T")


def test_a_message_without_a_unique_key_is_known_by_where_it_was_stored() -> None:
    plain = stored(properties={"UNIQ_KEY": ""})
    origin = plain.offset_msg_id
    retry = stored("%RETRY%g", at_ms=9, properties={"UNIQ_KEY": "", "ORIGIN_MESSAGE_ID": origin})
    (found,) = why(plain, retry, message=origin).lives
    assert found.id == origin
    assert Kind.RETRIED in {each.kind for each in found.findings}


def test_findings_are_in_the_order_of_time_and_what_is_so_now_is_last() -> None:
    found = life(MESSAGE, nodes=[fenced()], groups=[group("g", ("T", 0, 6))])
    times = [each.at_ms for each in found.findings]
    dated = [at_ms for at_ms in times if at_ms]
    assert dated == sorted(dated)
    assert times[len(dated) :] == [0] * (len(times) - len(dated))


def test_every_finding_has_evidence() -> None:
    found = life(MESSAGE, nodes=[fenced()], groups=[group("g", ("T", 0, 0))])
    assert all(each.evidence and each.text for each in found.findings)


def test_the_summary_says_where_it_is_and_what_each_group_did() -> None:
    groups = [group("a", ("T", 0, 6)), group("b", ("T", 0, 6)), group("c", ("T", 0, 1))]
    found = life(MESSAGE, nodes=[log()], groups=groups)
    assert "topic T, queue 0" in found.summary[0]
    assert "Groups a and b have consumed it." in found.summary
    assert "Group c has not consumed it yet (4 messages before it)." in found.summary


def test_what_is_left_of_a_message_is_told_of() -> None:
    letter = stored("%DLQ%g", at_ms=9, properties={"RETRY_TOPIC": "T"})
    found = life(letter, nodes=[log()])
    assert found.groups[0].state is State.DEAD
    assert "%DLQ%g" in found.summary[0]


def test_what_could_not_be_looked_at_is_in_the_answer() -> None:
    gap = Gap(what="node n2", why="away", remedy="start it")
    assert why(MESSAGE, gaps=[gap]).unknown == [gap]


def test_what_its_producer_was_answered_nobody_knows() -> None:
    assert any("answered" in gap.what for gap in life(MESSAGE).unknown)


def test_an_answer_is_json_and_is_read_back() -> None:
    found = why(MESSAGE, nodes=[fenced()], groups=[group("g", ("T", 0, 6))])
    assert msgspec.json.decode(msgspec.json.encode(found), type=Why) == found


@given(st.dictionaries(st.text(), st.text()), st.text(), st.integers(-(2**63), 2**63 - 1))
def test_whatever_is_in_a_record_its_life_can_be_told(
    properties: dict[str, str], topic: str, at_ms: int
) -> None:
    message = stored(topic, properties=properties)
    message = msgspec.structs.replace(
        message, store_timestamp_ms=at_ms, born_timestamp_ms=-at_ms, physical_offset=at_ms
    )
    found = why(message, message=copy(message).family, nodes=[fenced()])
    assert found.is_found
    msgspec.json.encode(found)


def test_a_delayed_message_is_due_and_that_comes_first() -> None:
    late = stored("SCHEDULE_TOPIC_XXXX", queue_id=17, properties={"REAL_TOPIC": "T", "DELAY": "18"})
    found = life(late)
    assert found.topic == "T"
    assert the(found, Kind.DELAYED).due_ms
    assert "It is delayed" in found.summary[0]
