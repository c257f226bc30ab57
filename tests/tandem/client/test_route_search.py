import msgspec
import pytest

from tandem.client.errors import (
    BrokerError,
    ConnectionCause,
    ConnectionLostError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.route_search import RouteSearch
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicRouteData, encode_json_body
from tests.tandem.client.fake_broker import MASTER, OTHER_MASTER, SLAVE, answer_to, route_of

NS = "10.0.0.1:9876"
REQUEST = RemotingCommand(code=105)
UNKNOWN = answer_to(REQUEST, ResponseCode.TOPIC_NOT_EXIST)
NOT_READY = answer_to(REQUEST, ResponseCode.SYSTEM_ERROR, remark="name remoting not ready: alone")
LOST = ConnectionLostError(NS, ConnectionCause.ENDED, "reset", outcome_unknown=True)

ALONE = route_of(("broker-a", {1: SLAVE}))
WHOLE = route_of(("broker-a", {0: MASTER, 1: SLAVE}))
TWO_GROUPS = route_of(("broker-a", {0: MASTER}), ("broker-b", {0: OTHER_MASTER}))


def said(route: TopicRouteData) -> RemotingCommand:
    return answer_to(REQUEST, body=encode_json_body(route))


def of_epoch(epoch: int, master: str) -> TopicRouteData:
    route = route_of(("broker-a", {0: master, 1: SLAVE}))
    (broker,) = route.broker_datas
    broker = msgspec.structs.replace(broker, master_epoch=epoch)
    return msgspec.structs.replace(route, broker_datas=[broker])


def state(it: RouteSearch) -> tuple[bool, bool]:
    """Whether there is an answer, and whether the search is over."""
    return it.has_answer, it.is_over


def search(known: TopicRouteData | None = None, *, suspected: bool = False) -> RouteSearch:
    return RouteSearch("T", known, suspected=suspected)


@pytest.mark.parametrize("order", [[ALONE, WHOLE], [WHOLE, ALONE]])
def test_one_that_knows_a_master_wins_whoever_answers_first(order: list[TopicRouteData]) -> None:
    it = search()
    for route in order:
        it.heard(NS, said(route))
    assert it.route() == WHOLE


def test_a_search_for_a_first_route_hears_everybody() -> None:
    for suspected in (False, True):
        it = search(suspected=suspected)
        assert state(it) == (False, False)
        it.heard(NS, said(WHOLE))
        assert state(it) == (True, False)


def test_a_master_that_was_elected_again_is_a_new_one() -> None:
    it = search(of_epoch(3, MASTER), suspected=True)
    it.heard(NS, said(of_epoch(4, MASTER)))
    assert state(it) == (True, True)


def test_a_suspected_route_is_searched_for_until_there_is_a_new_master() -> None:
    it = search(of_epoch(3, MASTER), suspected=True)
    it.heard(NS, said(of_epoch(3, MASTER)))
    assert state(it) == (True, False)
    it.heard(NS, said(of_epoch(4, OTHER_MASTER)))
    assert state(it) == (True, True)
    assert it.route() == of_epoch(4, OTHER_MASTER)


def test_a_new_master_is_not_enough_while_that_of_another_group_is_missing() -> None:
    it = search(TWO_GROUPS, suspected=True)
    it.heard(NS, said(route_of(("broker-a", {0: SLAVE}))))
    assert state(it) == (True, False)
    it.heard(NS, said(route_of(("broker-b", {1: SLAVE}))))
    assert state(it) == (True, False)
    it.heard(NS, said(route_of(("broker-b", {0: OTHER_MASTER}))))
    assert state(it) == (True, True)


def test_what_is_known_is_news_only_if_something_failed() -> None:
    it = search(of_epoch(3, MASTER))
    it.heard(NS, said(of_epoch(4, OTHER_MASTER)))
    assert not it.is_over


def test_a_master_that_was_known_stays_if_the_others_know_of_none() -> None:
    it = search(of_epoch(3, MASTER), suspected=True)
    it.heard(NS, said(ALONE))
    assert it.route() == of_epoch(3, MASTER)


def test_the_groups_that_name_servers_know_are_put_together() -> None:
    it = search()
    it.heard(NS, said(WHOLE))
    it.heard(NS, said(route_of(("broker-b", {0: OTHER_MASTER}))))
    route = it.route()
    assert route is not None
    assert [broker.broker_name for broker in route.broker_datas] == ["broker-a", "broker-b"]


def test_a_topic_that_one_has_not_heard_of_is_found_elsewhere() -> None:
    it = search()
    it.heard(NS, UNKNOWN)
    assert not it.has_answer
    it.heard(NS, said(WHOLE))
    assert it.route() == WHOLE


@pytest.mark.parametrize("other", [NOT_READY, LOST])
def test_a_topic_is_unknown_if_one_that_knows_says_so(
    other: RemotingCommand | ConnectionLostError,
) -> None:
    it = search()
    it.heard(NS, UNKNOWN)
    it.heard(NS, other)
    assert it.route() is None


def test_one_that_has_just_started_has_said_nothing_and_why_is_told() -> None:
    it = search()
    it.heard(NS, LOST)
    it.heard(NS, NOT_READY)
    assert not it.has_answer
    with pytest.raises(RouteNotFoundError) as caught:
        it.route()
    error = caught.value
    assert (error.may_pass, error.cause) == (True, RouteCause.STARTING)
    assert error.errors[0] is LOST
    assert isinstance(error.errors[1], BrokerError)
    assert (error.errors[1].address, error.errors[1].code) == (NS, 1)


def test_that_nobody_answers_may_pass_but_nobody_is_known_to_start() -> None:
    it = search()
    it.heard(NS, LOST)
    with pytest.raises(RouteNotFoundError) as caught:
        it.route()
    assert (caught.value.may_pass, caught.value.cause) == (True, RouteCause.NO_NAME_SERVER)


def test_nonsense_is_nothing() -> None:
    it = search()
    it.heard(NS, answer_to(REQUEST, body=b"{"))
    with pytest.raises(RouteNotFoundError) as caught:
        it.route()
    (error,) = caught.value.errors
    assert isinstance(error, ConnectionLostError)
    assert (error.cause, error.address) == (ConnectionCause.MALFORMED, NS)
