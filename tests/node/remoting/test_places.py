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


async def test_of_those_that_may_give_way_the_one_that_is_still_for_longest_goes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    places, connections = filled(3)
    await trio.sleep(STILL_SECONDS + 10)
    for each, seconds in zip(connections, (1, 3, 2), strict=True):
        each.last_active -= seconds
    assert places.make_room()
    assert [each.is_closed for each in connections] == [False, True, False]


async def test_for_an_address_with_too_many_no_other_address_gives_way(
    autojump_clock: trio.testing.MockClock,
) -> None:
    places = Places(4)
    stranger = connection("10.0.0.2")
    assert places.take(stranger)
    await trio.sleep(STRANGER_SECONDS + 1)
    for taken in (True, True, False):
        assert places.take(connection("10.0.0.1")) is taken
    assert not stranger.is_closed
    assert stranger in list(places)


async def test_who_leaves_twice_gives_back_one_place_of_its_address() -> None:
    places = Places(4)
    first, second = connection("10.0.0.1"), connection("10.0.0.1")
    assert places.take(first)
    assert places.take(second)
    places.leave(first)
    places.leave(first)
    assert [places.take(connection("10.0.0.1")) for _ in range(2)] == [True, False]
