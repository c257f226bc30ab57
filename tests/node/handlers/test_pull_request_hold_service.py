from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.testing

import node.handlers.pull_request_hold_service
from node.handlers.pull_request_hold_service import (
    SWEEP_SECONDS_MIN,
    HeldPull,
    PullRequestHoldService,
)
from node.remoting.connection import Connection, Outbox
from node.remoting.turns import TURN_SECONDS
from tandem.wire.message import Host
from tests.node.doubles import FakeStream

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def connection(ip: str = "10.1.2.3") -> Connection:
    return Connection(FakeStream(Host(ip, 1)), Outbox())


class NamedPull(HeldPull):
    name: str
    runs: Callable[[str], None]

    def run(self) -> None:
        self.runs(self.name)


class Pulls:
    """A service that is running, and which pulls it has run in which round."""

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self._round: list[str] = []
        self.before_each: Callable[[], None] = lambda: None
        self.owner = connection()
        self.service = PullRequestHoldService(self._end_round)

    def hold(
        self,
        name: str,
        offset: int = 0,
        codes: frozenset[int] | None = None,
        wait_seconds: float = 15.0,
        queue_id: int = 0,
        owner: Connection | None = None,
    ) -> bool:
        deadline = trio.current_time() + wait_seconds
        pull = NamedPull(offset, codes, deadline, owner or self.owner)
        pull.name, pull.runs = name, self._run
        return self.service.hold("T", queue_id, pull)

    def _run(self, name: str) -> None:
        self.before_each()
        self._round.append(name)

    def _end_round(self) -> None:
        self.rounds.append(self._round)
        self._round = []


async def test_a_message_releases_the_pulls_of_its_queue(nursery: trio.Nursery) -> None:
    pulls = Pulls()
    nursery.start_soon(pulls.service.run)
    pulls.hold("a", offset=5)
    pulls.hold("b", offset=6)
    pulls.hold("other", offset=5, queue_id=1)
    pulls.service.messages_arrived([(0, "T", 0, 6, None)])
    assert pulls.rounds == []
    await trio.testing.wait_all_tasks_blocked()
    assert pulls.rounds == [["a"]]
    assert pulls.service.held_count == 2
    nursery.cancel_scope.cancel()


async def test_a_round_of_messages_releases_a_pull_once(nursery: trio.Nursery) -> None:
    pulls = Pulls()
    nursery.start_soon(pulls.service.run)
    pulls.hold("a")
    for offset in range(1, 10):
        pulls.service.messages_arrived([(0, "T", 0, offset, 0)])
    await trio.testing.wait_all_tasks_blocked()
    assert pulls.rounds == [["a"]]
    assert pulls.service.held_count == 0
    nursery.cancel_scope.cancel()


async def test_a_message_with_another_tag_does_not_count(nursery: trio.Nursery) -> None:
    pulls = Pulls()
    nursery.start_soon(pulls.service.run)
    pulls.hold("a", codes=frozenset({7}))
    pulls.service.messages_arrived([(0, "T", 0, 1, 8)])
    await trio.testing.wait_all_tasks_blocked()
    assert pulls.rounds == []
    pulls.service.messages_arrived([(0, "T", 0, 2, 7)])
    await trio.testing.wait_all_tasks_blocked()
    assert pulls.rounds == [["a"]]
    nursery.cancel_scope.cancel()


async def test_several_messages_at_once_may_have_any_tag(nursery: trio.Nursery) -> None:
    pulls = Pulls()
    nursery.start_soon(pulls.service.run)
    pulls.hold("a", codes=frozenset({7}))
    pulls.service.messages_arrived([(0, "T", 0, 3, None)])
    await trio.testing.wait_all_tasks_blocked()
    assert pulls.rounds == [["a"]]
    nursery.cancel_scope.cancel()


async def test_a_pull_is_run_at_its_deadline(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    pulls = Pulls()
    nursery.start_soon(pulls.service.run)
    await trio.sleep(1)
    pulls.hold("late", wait_seconds=20)
    pulls.hold("soon", wait_seconds=3)
    await trio.sleep(2.9)
    assert pulls.rounds == []
    await trio.sleep(0.2)
    assert pulls.rounds == [["soon"]]
    await trio.sleep(16.8)
    assert pulls.rounds == [["soon"]]
    await trio.sleep(0.2)
    assert pulls.rounds == [["soon"], ["late"]]
    nursery.cancel_scope.cancel()


async def test_deadlines_close_together_cost_one_look(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    pulls = Pulls()
    nursery.start_soon(pulls.service.run)
    for index in range(50):
        pulls.hold(f"p{index}", wait_seconds=1 + index * SWEEP_SECONDS_MIN / 50)
    await trio.sleep(2)
    assert sum(len(names) for names in pulls.rounds) == 50
    assert len(pulls.rounds) <= 3
    nursery.cancel_scope.cancel()


async def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.handlers.pull_request_hold_service, "HELD_MAX", 2)
    pulls = Pulls()
    assert [pulls.hold(name) for name in "abc"] == [True, True, False]


async def test_cancelling_answers_nobody() -> None:
    pulls = Pulls()
    pulls.hold("a")
    with trio.move_on_after(0):
        await pulls.service.run()
    assert pulls.rounds == []
    assert pulls.service.held_count == 1


async def test_one_connection_and_one_address_have_bounds_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.handlers.pull_request_hold_service, "HELD_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(node.handlers.pull_request_hold_service, "HELD_PER_ADDRESS_MAX", 3)
    pulls = Pulls()
    greedy, neighbour, other = connection(), connection(), connection("10.1.2.4")
    taken = [pulls.hold(name, owner=greedy) for name in "abc"]
    taken += [pulls.hold(name, owner=neighbour) for name in "de"]
    taken += [pulls.hold("f", owner=other)]
    assert taken == [True, True, False, True, False, True]


async def test_the_pulls_of_a_closed_connection_make_room_at_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.handlers.pull_request_hold_service, "HELD_PER_ADDRESS_MAX", 2)
    pulls = Pulls()
    nursery.start_soon(pulls.service.run)
    gone, stays = connection(), connection()
    pulls.hold("gone", owner=gone)
    pulls.hold("stays", owner=stays)
    pulls.service.connection_closed(gone)
    pulls.service.connection_closed(gone)
    assert pulls.service.held_count == 1
    assert pulls.hold("new", owner=stays)
    pulls.service.messages_arrived([(0, "T", 0, 1, None)])
    await trio.sleep(60)
    assert pulls.rounds == [["stays", "new"]]
    nursery.cancel_scope.cancel()


async def test_thousands_that_become_ready_at_once_are_run_in_turns(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    """A node renews its lease between two of them."""
    pulls = Pulls()
    for number in range(40):
        pulls.hold(str(number))
    pulls.before_each = lambda: mock_clock.jump(TURN_SECONDS / 3.5)
    others = 0

    async def count_passes() -> None:
        nonlocal others
        while True:
            others += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(pulls.service.run)
    nursery.start_soon(count_passes)
    pulls.service.messages_arrived([(0, "T", 0, 1, None)])
    while sum(map(len, pulls.rounds)) < 40:
        await trio.lowlevel.checkpoint()
    assert [len(names) for names in pulls.rounds] == [4] * 10
    assert others >= 8  # in the first and the last pass it may have been too early or too late
    nursery.cancel_scope.cancel()
