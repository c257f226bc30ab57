from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from tandem.http_port import ConnectionPlaces, HTTPConnection, HTTPLimits, NoPlaceError

if TYPE_CHECKING:
    import h11

LIMITS = HTTPLimits(head_bytes=1024, body_bytes=10, idle_seconds=60, request_seconds=5)


class Scripted:
    """A client that sends these pieces, and then ends or is silent."""

    def __init__(self, *pieces: bytes, ends: bool = True) -> None:
        self.pieces = list(pieces)
        self.ends = ends
        self.answers = b""

    async def receive_some(self, _bytes_max: int, /) -> bytes:
        await trio.lowlevel.checkpoint()
        if self.pieces:
            return self.pieces.pop(0)
        if not self.ends:
            await trio.sleep_forever()
        return b""

    async def send_all(self, data: bytes, /) -> None:
        await trio.lowlevel.checkpoint()
        self.answers += data


def refuse(status: int, why: str) -> bytes:
    return f"{status} {why}".encode()


async def echo(connection: HTTPConnection, request: h11.Request, body: bytes) -> None:
    await connection.send_reply(200, request.target + b":" + body, "text/plain")


async def answers_to(*pieces: bytes) -> bytes:
    client = Scripted(*pieces)
    await HTTPConnection(client, LIMITS, refuse).run(echo)
    return client.answers


GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_requests_are_answered_one_after_the_other_however_they_are_cut() -> None:
    whole = await answers_to(GET + GET)
    assert whole.count(b"HTTP/1.1 200") == whole.count(b"/a:") == 2
    both = GET + GET
    assert await answers_to(*(both[at : at + 1] for at in range(len(both)))) == whole


async def test_the_answer_to_head_has_no_body() -> None:
    answer = await answers_to(GET.replace(b"GET", b"HEAD"))
    assert b"Content-Length: 3" in answer
    assert answer.endswith(b"\r\n\r\n")


async def test_a_body_that_is_too_long_is_refused() -> None:
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    assert b"/a:0123456789" in await answers_to(head % 10 + b"0123456789")
    answer = await answers_to(head % 11 + b"0123456789x", GET)
    assert answer.startswith(b"HTTP/1.1 413")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\0\0\1\2 nonsense\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nLong: " + b"y" * 2000,
        b"GET /a HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_answered_once_and_no_more_is_read(
    request_bytes: bytes,
) -> None:
    answer = await answers_to(request_bytes, GET)
    assert answer.startswith(b"HTTP/1.1 4")
    assert answer.count(b"HTTP/1.1") == 1


async def test_a_request_that_does_not_end_is_given_up(autojump_clock: object) -> None:
    client, began = Scripted(GET[:10], ends=False), trio.current_time()
    with pytest.raises(trio.TooSlowError):
        await HTTPConnection(client, LIMITS, refuse).run(echo)
    assert trio.current_time() - began == pytest.approx(5)


async def test_a_connection_that_says_nothing_is_given_up_later(autojump_clock: object) -> None:
    began = trio.current_time()
    with pytest.raises(trio.TooSlowError):
        await HTTPConnection(Scripted(ends=False), LIMITS, refuse).run(echo)
    assert trio.current_time() - began == pytest.approx(60)


async def test_headers_of_a_connection_and_of_an_answer_are_in_it() -> None:
    async def respond(connection: HTTPConnection, _request: h11.Request, _body: bytes) -> None:
        await connection.send_reply(200, b"", headers=[("X-One", "1")])

    client = Scripted(GET)
    headers = [("X-All", "a")]
    await HTTPConnection(client, LIMITS, refuse, headers=headers).run(respond)
    assert b"X-One: 1\r\n" in client.answers
    assert b"X-All: a\r\n" in client.answers
    unreadable = Scripted(b"no HTTP\r\n\r\n")
    await HTTPConnection(unreadable, LIMITS, refuse, headers=headers).run(respond)
    assert unreadable.answers.startswith(b"HTTP/1.1 400")
    assert b"X-All: a\r\n" in unreadable.answers
    assert b"\r\n\r\n400 " in unreadable.answers


async def test_an_answer_of_unknown_length_says_where_it_ends() -> None:
    async def respond(connection: HTTPConnection, _request: h11.Request, _body: bytes) -> None:
        await connection.start_stream("text/event-stream")
        await connection.send_chunk(b"one")
        await connection.end_stream()
        connection.is_over = True

    client = Scripted(GET + GET)
    await HTTPConnection(client, LIMITS, refuse).run(respond)
    assert client.answers.count(b"HTTP/1.1 200") == 1
    assert b"Content-Type: text/event-stream" in client.answers
    assert client.answers.endswith(b"3\r\none\r\n0\r\n\r\n")


async def test_of_too_many_one_that_has_asked_nothing_goes_then_the_one_quiet_for_longest() -> None:
    places = ConnectionPlaces(3)
    ended: list[str] = []
    ready: dict[str, trio.Event] = {name: trio.Event() for name in "abcdef"}

    async def client(name: str, *, asks: bool) -> None:
        try:
            with places.take() as place:
                if asks:
                    with place.answering():
                        await trio.lowlevel.checkpoint()
                ready[name].set()
                await trio.sleep_forever()
        finally:
            ended.append(name)

    async with trio.open_nursery() as nursery:
        for name, asks in (("a", True), ("b", False), ("c", True), ("d", True), ("e", True)):
            nursery.start_soon(partial(client, name, asks=asks))
            await ready[name].wait()
        await trio.testing.wait_all_tasks_blocked()
        assert (ended, places.count) == (["b", "a"], 3)
        nursery.cancel_scope.cancel()
    assert places.count == 0


async def test_who_is_being_answered_keeps_the_place() -> None:
    places = ConnectionPlaces(1)
    with places.take() as place:
        with place.answering(), pytest.raises(NoPlaceError), places.take():
            pass
        is_ended = [place.scope.cancel_called]
        with places.take():
            is_ended.append(place.scope.cancel_called)
    assert (is_ended, places.count) == ([False, True], 0)
