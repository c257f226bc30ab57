"""The order in which a mastership ends: read, and seen by a put that waits."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ha.fenced.mastership_end import BEFORE, ORDER, ORDER_OF_A_STOP, EndStep
from ha.fenced.replica_role import ReplicaRole
from store.results import PutMessageStatus
from tests.ha.fenced_parts import open_parts, won_by
from tests.support.reasons import words


def out_of_place(order: tuple[EndStep, ...]) -> list[tuple[EndStep, EndStep]]:
    """The pairs of `BEFORE` that an order has the wrong way round."""
    return [pair for pair in BEFORE if order.index(pair[0]) > order.index(pair[1])]


def test_every_step_has_its_place() -> None:
    assert len(set(ORDER)) == len(ORDER) == len(EndStep)
    assert out_of_place(ORDER) == []


@pytest.mark.parametrize(("first", "second"), list(BEFORE))
def test_two_steps_that_change_places_are_noticed(first: EndStep, second: EndStep) -> None:
    places = {first: second, second: first}
    assert (first, second) in out_of_place(tuple(places.get(step, step) for step in ORDER))


def test_a_process_that_stops_begins_no_other_round() -> None:
    assert ORDER[:-1] == ORDER_OF_A_STOP
    assert ORDER[-1] is EndStep.END_ROUND


@pytest.mark.parametrize("stops", [False, True])
async def test_a_put_that_waits_is_answered_when_nothing_is_taken_any_more(
    autojump_clock: MockClock,
    stops: bool,  # noqa: FBT001
) -> None:
    """What a producer may do in the moment of its answer finds this node a master no more."""
    seen: list[object] = []
    with open_parts() as parts:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parts.leadership.lead, won_by(parts))
            await wait_all_tasks_blocked()
            master = parts.standing.mastership
            assert master is not None

            def again(status: PutMessageStatus, _: str) -> None:
                seen.append(status)

            def done(status: PutMessageStatus, _: str) -> None:
                assert "is no longer master: a reason" in words(parts.store.refusal)
                assert parts.standing.role is ReplicaRole.RESTARTING
                assert not parts.standing.over_because
                seen.extend((status, list(parts.heard)))
                master.submit(1 << 20, trio.current_time() + 1, again)

            master.submit(1 << 20, trio.current_time() + 10, done)
            before = list(parts.heard)
            end = parts.leadership.close if stops else parts.leadership.step_down
            end("a reason")
            late = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
            assert seen == [late, before, late]
            assert parts.heard[len(before)] == "answered"
            assert bool(parts.standing.over_because) is not stops
            assert any(text.startswith("ended") for text in parts.heard) is not stops
            nursery.cancel_scope.cancel()
