import pytest

from node.errors import RequestError
from node.remoting import client_requests
from node.remoting.client_requests import ClientRequests
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from tandem.wire.request_headers import GroupRequestHeader
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Client


class Heard:
    """What was told about the requests that were asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int | None, bytes, str]] = []

    def __call__(self, answer: RemotingCommand | None, reason: str) -> None:
        code, body = (None, b"") if answer is None else (answer.code, answer.body)
        self.answers.append((code, body, reason))


def asked(to_clients: ClientRequests, client: Client, deadline: float = 10.0) -> Heard:
    heard = Heard()
    to_clients.ask(
        client.connection, 307, GroupRequestHeader("g"), b"b", deadline=deadline, done=heard
    )
    return heard


async def test_a_request_without_an_answer_is_one_way() -> None:
    to_clients = ClientRequests()
    client = Client({}, to_clients=to_clients)
    to_clients.tell(client.connection, 40, GroupRequestHeader("g"))
    (notice,) = client.answers()
    assert (notice.code, notice.flag) == (40, ONEWAY_FLAG)
    assert notice.ext_fields() == {"consumerGroup": "g"}


async def test_an_answer_reaches_who_asked_and_only_once() -> None:
    to_clients = ClientRequests()
    client = Client({}, to_clients=to_clients)
    first, second = asked(to_clients, client), asked(to_clients, client)
    one, two = client.answers()
    assert (one.code, one.flag, one.body) == (307, 0, b"b")
    client.answer(two, 207, b"second")
    client.answer(one, 0, b"first")
    client.answer(one, 0, b"again")
    assert first.answers == [(0, b"first", "")]
    assert second.answers == [(207, b"second", "")]


async def test_an_answer_counts_only_on_the_connection_that_was_asked() -> None:
    to_clients = ClientRequests()
    client, stranger = Client({}, to_clients=to_clients), Client({}, to_clients=to_clients)
    heard = asked(to_clients, client)
    (request,) = client.answers()
    stranger.answer(request)
    assert heard.answers == []


async def test_who_does_not_answer_in_time_is_given_up() -> None:
    to_clients = ClientRequests()
    client = Client({}, to_clients=to_clients)
    heard = asked(to_clients, client, deadline=10)
    (request,) = client.answers()
    to_clients.expire(9.9)
    assert heard.answers == []
    to_clients.expire(10)
    client.answer(request)
    to_clients.connection_closed(client.connection)
    assert heard.answers == [(None, b"", "the client at 10.1.2.3:1234 did not answer in time")]


async def test_a_closed_connection_answers_no_more() -> None:
    to_clients = ClientRequests()
    client = Client({}, to_clients=to_clients)
    heard = asked(to_clients, client)
    client.connection.close()
    to_clients.connection_closed(client.connection)
    assert heard.answers == [(None, b"", "the connection to 10.1.2.3:1234 was closed")]
    late = asked(to_clients, client)
    assert late.answers == [(None, b"", "the connection to 10.1.2.3:1234 is closed")]


async def test_there_is_a_bound_to_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_requests, "ASKED_MAX", 2)
    to_clients = ClientRequests()
    client = Client({}, to_clients=to_clients)
    asked(to_clients, client)
    asked(to_clients, client)
    with pytest.raises(RequestError) as refused:
        asked(to_clients, client)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    to_clients.expire(10)
    asked(to_clients, client)
