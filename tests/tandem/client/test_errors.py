import copy
import pickle

import pytest

from tandem.client.errors import (
    BrokerError,
    ClientError,
    CompressedBodyError,
    ConnectionLostError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendTimeoutError,
)
from tests.tandem.client.fake_broker import message_ext

ERRORS: list[tuple[ClientError, str]] = [
    (BrokerError(2, "[REJECTREQUEST]slave", "a:1"), "broker a:1 answered 2: [REJECTREQUEST]slave"),
    (BrokerError(1, ""), "broker ? answered 1: no remark"),
    (RouteNotFoundError("T", "no master"), "topic 'T': no master"),
    (
        ConnectionLostError("a:1", "reset", outcome_unknown=False),
        "connection to a:1: reset; the request never left",
    ),
    (
        ConnectionLostError("a:1", "reset", outcome_unknown=True),
        "connection to a:1: reset; the request may have been carried out",
    ),
    (
        RequestTimeoutError("a:1", outcome_unknown=True),
        "no answer from a:1 in time; the request may have been carried out",
    ),
    (
        SendTimeoutError("a:1", outcome_unknown=False),
        "no answer from a:1 in time; the request never left",
    ),
    (
        CompressedBodyError(message_ext(queue_offset=5), "no codec"),
        "message 0A00000100002A9F0000000000001388 of topic 'orders', queue 0, offset 5: no codec",
    ),
]


@pytest.mark.parametrize(("error", "text"), ERRORS)
def test_an_error_says_what_happened_and_survives_copy_and_pickle(
    error: ClientError, text: str
) -> None:
    for again in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(again) == text
        assert again.outcome_unknown is error.outcome_unknown
        assert vars(again) == vars(error)


def test_a_refusal_is_never_unknown() -> None:
    assert not BrokerError(1, "").outcome_unknown
    assert not RouteNotFoundError("T", "").outcome_unknown
