import msgspec
import pytest

from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.errors import BrokerError, ConnectionCause, ConnectionLostError
from tandem.client.group_flow import (
    Filter,
    GroupMember,
    delay_level,
    subscription_data,
)
from tandem.client.results import MessageQueue
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    HandShell,
    answer_to,
    message_ext,
)
from tests.tandem.client.group_broker import GROUP, GroupBroker

QUEUES = [MessageQueue("orders", "broker-a", at) for at in (0, 1)]


class World:
    def __init__(self) -> None:
        self.broker = GroupBroker()
        self.shell = HandShell({MASTER: self.broker, NAME_SERVER: self.broker})
        self.core = ClientCore(
            NAME_SERVER, identity=IDENTITY, clock=self.shell.clock, consumer_group=GROUP
        )
        self.member = GroupMember(self.core, GROUP, 3)
        self.shell.run(self.core.refresh_route("orders"))


@pytest.mark.parametrize(
    ("seconds", "level"),
    [(None, 0), (0, 1), (1, 1), (1.001, 2), (10, 3), (60, 5), (7200, 18), (1e9, 18)],
)
def test_a_delay_is_rounded_up_to_a_level(seconds: float | None, level: int) -> None:
    assert delay_level(seconds) == level


def test_a_subscription_has_its_tags_and_their_hashes() -> None:
    data = subscription_data(Filter("orders", "a ||b"), 7)
    assert (data.sub_string, data.tags_set, data.code_set) == ("a ||b", ["a", "b"], [97, 98])
    assert subscription_data(Filter("orders"), 7).tags_set == []
    sql = subscription_data(Filter("orders", sql="a > 1"), 7)
    assert (sql.sub_string, sql.expression_type, sql.sub_version) == ("a > 1", "SQL92", 7)


def test_members_are_those_that_the_broker_knows() -> None:
    world = World()
    world.broker.members = ["a", "b"]
    assert world.shell.run(world.member.members("orders")) == ["a", "b"]
    world.shell.failures[MASTER] = [ConnectionLostError(MASTER, ConnectionCause.ENDED, "planned")]
    assert world.shell.run(world.member.members("orders")) is None
    assert world.shell.run(world.member.members("unknown")) is None


def test_a_list_of_members_that_does_not_parse_is_none() -> None:
    world = World()
    world.broker.handlers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda request: answer_to(
        request, body=b"{"
    )
    assert world.shell.run(world.member.members("orders")) is None


def test_locks_are_granted_once_and_given_back() -> None:
    world = World()
    world.broker.locks["orders", 1] = "another"
    assert world.shell.run(world.member.lock(QUEUES)) == QUEUES[:1]
    world.broker.locks.clear()
    assert world.shell.run(world.member.lock(QUEUES)) == QUEUES
    world.shell.run(world.member.unlock(QUEUES))
    assert world.broker.locks == {}
    assert world.shell.run(world.member.lock([])) == []


def test_a_broker_that_does_not_answer_locks_nothing() -> None:
    world = World()
    world.shell.failures[MASTER] = [ConnectionLostError(MASTER, ConnectionCause.ENDED, "planned")]
    assert world.shell.run(world.member.lock(QUEUES)) == []
    assert world.core.trusted_route("orders") is None


def test_a_message_that_comes_back_says_which_and_whose() -> None:
    world = World()
    stored = msgspec.structs.replace(
        message_ext(b"x", queue_offset=4), properties={"UNIQ_KEY": "K"}
    )
    world.shell.run(world.member.send_back(QUEUES[0], stored, 3))
    (header,) = world.broker.sent_back
    assert (header.offset, header.group, header.delay_level) == (4000, GROUP, 3)
    assert (header.origin_msg_id, header.origin_topic) == ("K", "orders")
    assert (header.max_reconsume_times, header.broker_name) == (3, "broker-a")


def test_giving_back_outlives_a_change_of_master() -> None:
    world = World()
    began = world.shell.now
    refusals = [ResponseCode.SERVICE_NOT_AVAILABLE] * 4
    answer = world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK]
    world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda request: (
        answer_to(request, refusals.pop()) if refusals else answer(request)
    )
    world.shell.run(world.member.send_back(QUEUES[0], message_ext(b"x"), 0))
    assert len(world.broker.sent_back) == 1
    assert 0 < world.shell.now - began < SWITCH_SECONDS


def test_giving_back_ends_with_the_last_refusal() -> None:
    world = World()
    began = world.shell.now
    world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda request: answer_to(
        request, ResponseCode.SERVICE_NOT_AVAILABLE
    )
    with pytest.raises(BrokerError):
        world.shell.run(world.member.send_back(QUEUES[0], message_ext(b"x"), 0))
    assert SWITCH_SECONDS - 1 < world.shell.now - began <= SWITCH_SECONDS
    world.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda request: answer_to(
        request, ResponseCode.NO_PERMISSION
    )
    before = world.shell.now
    with pytest.raises(BrokerError):
        world.shell.run(world.member.send_back(QUEUES[0], message_ext(b"x"), 0))
    assert world.shell.now == before
