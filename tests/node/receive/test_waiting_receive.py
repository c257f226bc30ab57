from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.errors import RequestError
from node.receive.requests import Found, Receive, Received
from node.receive.waiting import Place, WaitingRequest, WaitingRequests
from node.receive.waiting_receive import WaitingReceive

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST = Receive(group="g", topic="T", queue_count=4, count_max=8, invisible_ms=1000, deadline=9.0)
NOTHING = Received(Found.NOTHING, 1, 1000, 0)


class Service:
    """What runs receives; notes which it was told to run, and what was answered."""

    def __init__(self, *, has_room: bool = True) -> None:
        self.receiving = WaitingRequests()
        self.has_room = has_room
        self.again: list[bool] = []
        self.answers: list[Received | RequestError] = []
        self.waiting = WaitingReceive(self, REQUEST, self.answers.append, None)

    def park(self, request: Receive, run: Callable[[bool], None]) -> WaitingRequest | None:
        place = Place(request.group, request.topic, request.queue_id)
        return self.receiving.park(place, request.deadline, None, run) if self.has_room else None

    def run_again(self, waiting: WaitingReceive, *, is_expired: bool) -> None:
        assert waiting is self.waiting
        self.again.append(is_expired)


def test_it_is_run_again_when_a_message_comes_or_its_time_is_up() -> None:
    service = Service()
    assert service.waiting.wait(NOTHING)
    service.receiving.messages_arrived([(0, "T", 0, 1, None)])
    service.receiving.ready.popleft().run(False)  # noqa: FBT003 - see `WaitingRequest.run`
    assert service.waiting.wait(NOTHING)
    for expired in service.receiving.take_expired(10.0):
        expired.run(True)  # noqa: FBT003
    assert service.again == [False, True]
    assert service.answers == []


def test_without_room_it_is_answered() -> None:
    service = Service(has_room=False)
    assert not service.waiting.wait(NOTHING)
    assert service.answers == [msgspec.structs.replace(NOTHING, found=Found.FULL)]


def test_where_a_filter_has_not_looked_at_all_it_goes_on_soon() -> None:
    service = Service()
    assert service.waiting.wait(msgspec.structs.replace(NOTHING, is_left_off=True))
    assert len(service.receiving.ready) == 1


def test_one_that_is_cancelled_waits_no_more() -> None:
    service = Service()
    service.waiting.cancel()
    assert service.waiting.is_cancelled
    assert service.waiting.wait(NOTHING)
    service.waiting.cancel()
    service.receiving.messages_arrived([(0, "T", 0, 1, None)])
    assert not service.receiving.ready
    assert list(service.receiving.take_expired(10.0)) == []
