from __future__ import annotations

import trio
import trio.testing

from node.remoting.connection import Connection, Outbox
from node.remoting.places import STILL_SECONDS, STRANGER_SECONDS, Places
from tandem.wire.message import Host
from tests.node.doubles import FakeStream


def connection(ip: str) -> Connection:
    return Connection(FakeStream(Host(ip, 1)), Outbox())


def filled(count: int) -> tuple[Places, list[Connection]]:
    places = Places(count)
    connections = [connection(f"10.0.0.{number}") for number in range(count)]
    for each in connections:
        each.has_asked = True
        assert places.make_room()
        assert places.take(each)
    return places, connections


async def test_a_place_that_is_left_is_free() -> None:
    places, connections = filled(2)
    assert not places.make_room()
    places.leave(connections[0])
    places.leave(connections[0])
    assert places.make_room()
    assert list(places) == connections[1:]


async def test_a_stranger_goes_before_a_client_that_is_still_for_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    places, connections = filled(3)
    await trio.sleep(STILL_SECONDS + 1)
    connections[1].has_asked = False
    connections[1].last_active = trio.current_time() - STRANGER_SECONDS - 1
    assert places.make_room()
    assert [each.is_closed for each in connections] == [False, True, False]


async def test_one_that_is_owed_an_answer_keeps_its_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    places, connections = filled(2)
    await trio.sleep(STILL_SECONDS + 1)
    for each in connections:
        each.owe()
    assert not places.make_room()


async def test_half_of_the_places_is_for_others() -> None:
    places, _ = filled(4)
    for each in places:
        places.leave(each)
    assert [places.take(connection("10.0.0.1")) for _ in range(3)] == [True, True, False]
    assert places.take(connection("10.0.0.2"))
