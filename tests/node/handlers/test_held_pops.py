"""Whose the requests are that wait."""

from node.errors import RequestError
from node.handlers.held_pops import HeldPop, HeldPops
from tests.node.doubles import Client


class Waiting:
    def __init__(self) -> None:
        self.cancelled_count = 0

    def cancel(self) -> None:
        self.cancelled_count += 1


def pop_of(client: Client, refused: list[RequestError] | None = None) -> HeldPop:
    return HeldPop(client.connection, "T", "CG", (refused or []).append)


async def test_what_is_answered_is_held_no_more_and_may_be_answered_twice() -> None:
    held, client, waiting = HeldPops(), Client({}), Waiting()
    pop, other = pop_of(client), pop_of(client)
    held.answered(pop)
    held.hold(pop, waiting)
    held.hold(other, Waiting())
    assert held.held_count == 2
    for _ in range(2):
        held.answered(pop)
        assert held.held_count == 1
    held.connection_closed(client.connection)
    assert (held.held_count, waiting.cancelled_count) == (0, 0)


async def test_a_connection_takes_what_waits_with_it_and_leaves_others_alone() -> None:
    held, gone, client = HeldPops(), Client({}), Client({})
    first, second = Waiting(), Waiting()
    held.hold(pop_of(gone), first)
    held.hold(pop_of(client), second)
    for _ in range(2):
        held.connection_closed(gone.connection)
    assert (first.cancelled_count, second.cancelled_count, held.held_count) == (1, 0, 1)
