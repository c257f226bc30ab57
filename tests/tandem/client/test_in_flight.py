from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tandem.client.in_flight import InFlight


def test_who_comes_when_it_is_full_waits_first_come_first_served() -> None:
    in_flight = InFlight(100)
    woken: list[str] = []
    assert in_flight.enter(60)
    assert not in_flight.enter(50)
    in_flight.wait_in_line(50, lambda _: woken.append("large"))
    # There would be room for a small one, but it would overtake.
    assert not in_flight.enter(10)
    in_flight.wait_in_line(10, lambda _: woken.append("small"))
    in_flight.leave(60)
    assert woken == ["large", "small"]
    assert in_flight.bytes == 60


def test_a_message_larger_than_the_bound_goes_when_it_is_alone() -> None:
    in_flight = InFlight(100)
    woken: list[int] = []
    assert in_flight.enter(1)
    assert not in_flight.enter(500)
    in_flight.wait_in_line(500, lambda _: woken.append(500))
    in_flight.leave(1)
    assert woken == [500]
    assert not in_flight.enter(1)


def test_who_steps_out_of_the_line_makes_way() -> None:
    in_flight = InFlight(100)
    woken: list[str] = []
    assert in_flight.enter(90)

    def large(_: object) -> None:
        woken.append("large")

    in_flight.wait_in_line(20, large)
    in_flight.wait_in_line(10, lambda _: woken.append("small"))
    in_flight.withdraw(20, large)
    assert woken == ["small"]
    assert in_flight.bytes == 100


def test_who_is_cancelled_after_being_let_in_leaves_again() -> None:
    in_flight = InFlight(100)
    assert in_flight.enter(100)

    def wake(_: object) -> None:
        return

    in_flight.wait_in_line(40, wake)
    in_flight.leave(100)
    assert in_flight.bytes == 40
    in_flight.withdraw(40, wake)
    assert in_flight.bytes == 0


@given(st.lists(st.integers(1, 120), max_size=30))
def test_all_get_in_and_the_bound_holds_for_more_than_one(sizes: list[int]) -> None:
    in_flight = InFlight(100)
    inside: list[int] = []

    def waker(size: int) -> Callable[[object], None]:
        return lambda _: inside.append(size)

    for size in sizes:
        if in_flight.enter(size):
            inside.append(size)
        else:
            in_flight.wait_in_line(size, waker(size))
        assert in_flight.bytes == sum(inside)
        assert len(inside) == 1 or sum(inside) <= 100
    count = 0
    while inside:
        count += 1
        in_flight.leave(inside.pop(0))
    assert (count, in_flight.bytes) == (len(sizes), 0)
