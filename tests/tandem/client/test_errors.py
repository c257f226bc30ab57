import copy
import pickle
from pathlib import Path

import pytest

from tandem.client.errors import (
    BrokerError,
    ClientError,
    CompressedBodyError,
    ConnectionCause,
    ConnectionLostError,
    MessageNotFoundError,
    NotOpenError,
    OffsetsFileError,
    ReplyTimeoutError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
    SendTimeoutError,
)
from tandem.wire.compression import CompressionFault
from tests.tandem.client.fake_broker import message_ext

ERRORS: list[tuple[ClientError, str]] = [
    (BrokerError(2, "[REJECTREQUEST]slave", "a:1"), "broker a:1 answered 2: [REJECTREQUEST]slave"),
    (BrokerError(1, ""), "broker ? answered 1: no remark"),
    (RouteNotFoundError("T", RouteCause.NO_MASTER, "no master"), "topic 'T': no master"),
    (
        ConnectionLostError("a:1", ConnectionCause.ENDED, "reset", outcome_unknown=False),
        "connection to a:1: reset; the request never left",
    ),
    (
        ConnectionLostError("a:1", ConnectionCause.ENDED, "reset", outcome_unknown=True),
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
        CompressedBodyError(message_ext(queue_offset=5), CompressionFault.NO_LIBRARY, "no codec"),
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


@pytest.mark.parametrize(
    "error",
    [
        MessageNotFoundError("a message 'x'", needs_topic=True),
        OffsetsFileError(Path("offsets.json"), "it is not one"),
        ReplyTimeoutError("T", 20, is_stored=False),
        NotOpenError("it is not open"),
    ],
)
def test_the_attributes_of_an_error_survive_pickle(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_what_each_name_server_ended_with_survives_pickle() -> None:
    lost = ConnectionLostError("a:1", ConnectionCause.TLS, "not trusted")
    error = RouteNotFoundError("T", RouteCause.NO_NAME_SERVER, "nobody", errors=[lost])
    (again,) = pickle.loads(pickle.dumps(error)).errors
    assert (type(again), vars(again)) == (ConnectionLostError, vars(lost))


def test_an_id_that_may_be_a_unique_key_comes_with_the_remedy() -> None:
    assert "name its topic" in str(MessageNotFoundError("a message 'x'", needs_topic=True))
    assert str(MessageNotFoundError("a message 'x'")) == "no broker holds a message 'x'"


def test_a_refusal_is_never_unknown() -> None:
    assert not BrokerError(1, "").outcome_unknown
    assert not RouteNotFoundError("T", RouteCause.NO_NAME_SERVER, "").outcome_unknown
