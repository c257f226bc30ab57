"""`Admin.why`: what is asked of whom, and that nothing that is away ends it."""

import pytest

from tandem.client.errors import ConnectionCause, ConnectionLostError, RouteNotFoundError
from tandem.life.lives import LIVES_MAX
from tandem.life.result import Kind, Life, State
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import MessageQueueBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import ConsumeStats, OffsetWrapper, queue_map
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER, OTHER_MASTER, SLAVE
from tests.tandem.client.life_world import KEY, LifeWorld, status, stored

MESSAGE = stored(offset=4)
DEAD = stored("%DLQ%g", at_ms=90, reconsume_times=3, properties={"RETRY_TOPIC": "T"})


def kinds(life: Life) -> set[Kind]:
    return {each.kind for each in life.findings}


@pytest.mark.parametrize(
    ("message", "topic"), [(KEY, "T"), (KEY, ""), ("k2", "T"), (MESSAGE.offset_msg_id, "")]
)
def test_a_message_is_found_by_unique_key_key_and_offset_id(message: str, topic: str) -> None:
    found = LifeWorld(MESSAGE, read=5).why(message, topic)
    (life,) = found.lives
    assert (life.id, life.topic) == (KEY, "T")
    assert [(each.group, each.state) for each in life.groups] == [("g", State.CONSUMED)]


def test_every_node_of_its_group_is_asked_whether_it_has_it() -> None:
    world = LifeWorld(MESSAGE)
    (life,) = world.why(KEY, "T").lives
    (replicated,) = [each for each in life.findings if each.kind is Kind.REPLICATED]
    assert MASTER in replicated.text
    assert SLAVE in replicated.text
    asked = [address for address, _ in world.requests(RequestCode.VIEW_MESSAGE_BY_ID)]
    assert asked == [MASTER, SLAVE]


def test_a_dead_letter_is_found_beside_its_message_and_from_itself() -> None:
    world = LifeWorld(MESSAGE, DEAD, read=5)
    for asked in (KEY, DEAD.offset_msg_id):
        (life,) = world.why(asked, "T").lives
        assert life.groups[0].state is State.DEAD
        assert life.topic == "T"


@pytest.mark.parametrize("name", ["%RETRY%g+T", "%RETRY%g_T"])
def test_what_came_back_to_a_group_that_pops_is_found(name: str) -> None:
    popped = stored(name, at_ms=90, reconsume_times=1, properties={"1ST_POP_TIME": "1"})
    world = LifeWorld(MESSAGE, popped, read=5)
    progress = [
        (MessageQueueBody("broker-a", 0, topic), OffsetWrapper(9, read, 0, read))
        for topic, read in (("T", 5), (name, 0))
    ]
    world.bodies(
        RequestCode.GET_CONSUME_STATS,
        lambda broker: ConsumeStats(0.0, queue_map(progress if broker == "broker-a" else [])),
    )
    for asked, topic in ((KEY, "T"), (popped.offset_msg_id, "T"), (popped.offset_msg_id, "")):
        (life,) = world.why(asked, topic).lives
        assert life.topic == "T"
        (group,) = life.groups
        assert (group.group, group.state, group.retries) == ("g", State.AGAIN, 1)


def test_of_more_messages_than_are_told_of_the_newest_are() -> None:
    made = [
        stored(offset=number, at_ms=number, properties={"UNIQ_KEY": f"{KEY[:-4]}{number:04X}"})
        for number in range(LIVES_MAX + 2)
    ]
    found = LifeWorld(*reversed(made)).why("k1", "T")
    assert [life.id for life in found.lives] == [each.properties["UNIQ_KEY"] for each in made[2:]]
    assert found.left_out == 2


def test_a_retry_that_waits_is_found() -> None:
    waits = stored(
        SCHEDULE_TOPIC,
        at_ms=70,
        queue_id=2,
        reconsume_times=1,
        properties={"REAL_TOPIC": "%RETRY%g", "DELAY": "3", "RETRY_TOPIC": "T"},
    )
    (life,) = LifeWorld(MESSAGE, waits, read=5).why(KEY, "T").lives
    assert life.groups[0].state is State.AGAIN


def test_a_message_that_only_waits_is_found_without_its_topic_having_it() -> None:
    waits = stored(SCHEDULE_TOPIC, queue_id=17, properties={"REAL_TOPIC": "T", "DELAY": "18"})
    (life,) = LifeWorld(waits).why(KEY, "T").lives
    assert Kind.DELAYED in kinds(life)


def test_a_fenced_group_says_epoch_and_confirm_offset_and_who_is_away() -> None:
    world = LifeWorld(MESSAGE)
    world.fence(status)
    found = world.why(KEY, "T")
    (life,) = found.lives
    assert Kind.CONFIRMED in kinds(life)
    assert "epoch 4" in next(each.text for each in life.findings if each.kind is Kind.STORED)
    assert any(gap.what == "node broker-a-3" for gap in found.unknown)


def test_a_broker_that_is_away_is_a_gap_and_is_not_waited_for() -> None:
    world = LifeWorld(MESSAGE)
    lost = ConnectionLostError(OTHER_MASTER, ConnectionCause.UNREACHABLE, "refused")
    world.shell.failures[OTHER_MASTER] = [lost] * 50
    began = world.shell.now
    found = world.why(KEY, "T")
    assert found.is_found
    assert any(OTHER_MASTER in gap.what for gap in found.unknown)
    assert world.shell.now == began


def test_a_node_that_is_away_is_asked_only_once() -> None:
    world = LifeWorld(MESSAGE)
    world.shell.failures[MASTER] = [
        ConnectionLostError(MASTER, ConnectionCause.UNREACHABLE, "refused")
    ] * 50
    (life,) = world.why(KEY, "T").lives
    assert SLAVE in next(each.text for each in life.findings if each.kind is Kind.REPLICATED)
    assert len(world.shell.failures[MASTER]) == 50 - 5


def test_what_is_refused_is_a_gap_with_a_remedy() -> None:
    world = LifeWorld(MESSAGE)
    world.refuse(RequestCode.QUERY_MESSAGE, ResponseCode.NO_PERMISSION)
    found = world.why(KEY, "T")
    assert not found.is_found
    assert found.absence == [] or all(each.kind is not Kind.NO_RECORD for each in found.absence)
    assert any("16" in gap.why and gap.remedy for gap in found.unknown)


def test_a_topic_that_was_refused_was_not_looked_at() -> None:
    world = LifeWorld()
    world.refuse(RequestCode.QUERY_MESSAGE, ResponseCode.NO_PERMISSION)
    found = world.why("nope", "T")
    assert not any(look.is_complete for look in found.looked)
    assert Kind.NO_RECORD not in {each.kind for each in found.absence}


def test_nothing_found_says_what_was_looked_at() -> None:
    found = LifeWorld().why("nope", "T")
    assert not found.is_found
    assert {look.where for look in found.looked} >= {"topic T", f"topic {SCHEDULE_TOPIC}"}
    assert Kind.NO_RECORD in {each.kind for each in found.absence}


def test_a_hash_that_is_another_keys_does_not_count() -> None:
    found = LifeWorld(MESSAGE).why("k3", "T")
    assert not found.is_found
    assert {look.found for look in found.looked} == {0}


def test_another_message_at_the_place_of_an_offset_id_is_shown() -> None:
    other = MESSAGE.offset_msg_id.replace("0A000001", "0A000002")
    found = LifeWorld(MESSAGE).why(other)
    assert not found.is_found
    assert Kind.REPLACED in {each.kind for each in found.absence}


def test_without_a_topic_all_topics_of_users_are_looked_through() -> None:
    world = LifeWorld(MESSAGE)
    world.why("nope")
    topics = {
        request.ext_fields()["topic"] for _, request in world.requests(RequestCode.QUERY_MESSAGE)
    }
    assert "T" in topics
    assert "%RETRY%g" not in topics


def test_without_any_name_server_there_is_no_answer() -> None:
    world = LifeWorld()
    world.shell.failures[NAME_SERVER] = [
        ConnectionLostError(NAME_SERVER, ConnectionCause.UNREACHABLE, "refused")
    ] * 9
    with pytest.raises(RouteNotFoundError):
        world.why(KEY, "T")


@pytest.mark.parametrize("message", ["x" * 40_000, "\x01", "k1 k2", "%s", "{}", "00" * 28])
def test_hostile_texts_find_nothing_and_end_nothing(message: str) -> None:
    assert not LifeWorld(MESSAGE).why(message, "T").is_found
