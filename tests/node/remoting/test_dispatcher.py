import logging

import pytest

from node.errors import RequestError
from node.remoting.connection import Connection
from node.remoting.dispatcher import Handler, Pieces, in_pieces, response_to
from tandem.wire.errors import MalformedMessageError
from tandem.wire.remoting_command import (
    ONEWAY_FLAG,
    PROTOCOL_VERSION,
    RESPONSE_FLAG,
    RemotingCommand,
    SerializeType,
    encode_frame,
)
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Client


def refuse(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
    raise RequestError(ResponseCode.TOPIC_NOT_EXIST, "no such topic")


def malformed(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
    raise MalformedMessageError("bad at byte 3")


def buggy(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
    raise KeyError("nope")


def silent(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
    return None


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_an_unknown_code_is_answered_with_3(serialize_type: SerializeType) -> None:
    answer = Client({}).call(9999, serialize_type=serialize_type)
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
    assert answer.version == PROTOCOL_VERSION


async def test_a_refusal_becomes_its_code_and_remark() -> None:
    answer = Client({1: refuse}).call(1)
    assert (answer.code, answer.remark) == (17, "no such topic")


async def test_a_malformed_body_is_answered_with_1() -> None:
    answer = Client({1: malformed}).call(1)
    assert (answer.code, answer.remark) == (1, "bad at byte 3")


async def test_a_bug_is_answered_logged_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    client = Client({1: buggy, 2: refuse})
    with caplog.at_level(logging.ERROR):
        answer = client.call(1)
    assert (answer.code, answer.remark) == (1, "KeyError: 'nope'")
    assert "request 1 from 10.1.2.3:1234 failed" in caplog.text
    assert "Traceback" in caplog.text
    assert client.call(2).code == 17


@pytest.mark.parametrize("code", [1, 2, 3, 9999])
async def test_a_oneway_request_gets_no_answer_whatever_happens(code: int) -> None:
    client = Client({1: refuse, 2: malformed, 3: buggy})
    client.send(code, flag=ONEWAY_FLAG)
    assert client.answers() == []


async def test_a_handler_may_answer_later() -> None:
    client = Client({1: silent})
    client.send(1)
    assert client.answers() == []


async def test_an_answer_from_a_client_is_ignored() -> None:
    client = Client({1: buggy})
    client.send(1, flag=RESPONSE_FLAG)
    assert client.answers() == []


async def test_a_node_that_serves_nobody_says_why_and_answers_what_is_about_itself() -> None:
    served = {code: lambda _, command: response_to(command) for code in (1, 2)}
    client = Client(served)
    client._dispatcher.refuse_all(lambda: "a0 is in quarantine: why", but={2})
    answer = client.call(1)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark == "a0 is in quarantine: why"
    assert client.call(2).code == 0


def pieces_then(last: Handler) -> Handler:
    class Owner:
        @in_pieces
        def handle(self, connection: Connection, command: RemotingCommand) -> Pieces:
            yield
            yield
            return last(connection, command)

    return Owner().handle


def done(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    return response_to(command)


def done_encoded(connection: Connection, command: RemotingCommand) -> bytes:
    return encode_frame(response_to(command))


@pytest.mark.parametrize(
    ("last", "code"), [(done, 0), (done_encoded, 0), (refuse, 17), (malformed, 1), (buggy, 1)]
)
async def test_a_request_in_pieces_is_answered_after_the_last(last: Handler, code: int) -> None:
    client = Client({1: pieces_then(last)})
    assert client.call(1).code == code
    assert client.pieces == 2
    client.send(1, flag=ONEWAY_FLAG)
    assert client.answers() == []


async def test_a_request_in_pieces_that_has_only_one_is_answered_at_once() -> None:
    class Owner:
        @in_pieces
        def handle(self, connection: Connection, command: RemotingCommand) -> Pieces:
            yield from ()
            return response_to(command)

    client = Client({1: Owner().handle})
    assert (client.call(1).code, client.pieces) == (0, 0)


async def test_a_request_in_pieces_may_be_answered_later_as_well() -> None:
    client = Client({1: pieces_then(silent)})
    client.send(1)
    assert (client.answers(), client.connection.unfinished) == ([], None)
