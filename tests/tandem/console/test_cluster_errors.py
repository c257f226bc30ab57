import pytest

from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    GroupNotFoundError,
    MessageNotFoundError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
    UserNotFoundError,
)
from tandem.console.cluster_errors import api_error, is_refusal
from tandem.wire.response_code import ResponseCode


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BrokerError(ResponseCode.NO_PERMISSION, "no"), 403, "forbidden"),
        (BrokerError(ResponseCode.TOPIC_NOT_EXIST, "no"), 404, "no_topic"),
        (BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no"), 404, "no_group"),
        (BrokerError(ResponseCode.SYSTEM_BUSY, "no"), 502, "refused"),
        (BrokerError(4711, "no"), 502, "refused"),
        (RouteNotFoundError("T", RouteCause.NO_TOPIC, "no"), 404, "no_topic"),
        (RouteNotFoundError("T", RouteCause.NO_QUEUE, "no"), 404, "no_topic"),
        (RouteNotFoundError("T", RouteCause.NO_MASTER, "no"), 503, "no_answer"),
        (RouteNotFoundError("*", RouteCause.NO_NAME_SERVER, "no"), 503, "no_answer"),
        (GroupNotFoundError("g"), 404, "no_group"),
        (MessageNotFoundError("m"), 404, "no_message"),
        (RequestTimeoutError("a:1"), 504, "timeout"),
        (ConnectionLostError("a:1", ConnectionCause.ENDED, "gone"), 503, "no_answer"),
        (UserNotFoundError("u"), 502, "refused"),
    ],
)
def test_each_error_has_its_answer(error: ClientError, status: int, code: str) -> None:
    found = api_error(error, "shop")
    assert (found.status, found.code) == (status, code)
    assert found.remedy
    assert is_refusal(error) == (status == 403)


def test_that_it_may_have_been_done_is_said() -> None:
    unknown = api_error(RequestTimeoutError("a:1"), "")
    assert unknown.details == {"outcome_unknown": True}
    read = api_error(RequestTimeoutError("a:1"), "", changes=False)
    assert read.details == {"outcome_unknown": False}
    never = api_error(RequestTimeoutError("a:1", outcome_unknown=False), "")
    assert never.details == {"outcome_unknown": False}
    assert unknown.remedy != never.remedy


def test_what_a_node_says_makes_one_line() -> None:
    found = api_error(BrokerError(1, "a\nb\x1b[31m" + "x" * 9_999), "")
    assert "\n" not in found.message
    assert "\x1b" not in found.message
    assert len(found.message) < 2_100
