"""One candidate: turns, answers that get lost, and who has won in the end."""

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ha.fenced.candidacy import Candidacy
from ha.fenced.election import Election, Follow, Run
from ha.fenced.lease import LeaseDeadline
from tandem.coordinator.interface import LeaseLostError
from tandem.wire.group_state import LeaderRecord
from tests.ha.scripted_session import NODES, OWN, STATE, Desk


def candidacy_of(desk: Desk) -> Candidacy:
    return Candidacy(
        desk,
        Election(),
        epoch=6,
        log_end=100,
        facts=lambda: OWN,
        boottime=trio.current_time,
        wall_clock_ms=lambda: 7,
        epoch_id="e1d",
    )


async def test_a_transaction_that_is_taken_is_won(autojump_clock: MockClock) -> None:
    desk = Desk("take")
    won = await candidacy_of(desk).run()
    assert won is not None
    assert (won.state.epoch, won.state.master, won.log_end) == (6, "a", 100)
    assert won.state.isr == {"a": "a1", "c": "c1"}
    assert won.state_revision == won.leader_revision == 11


async def test_a_lost_answer_is_looked_up(autojump_clock: MockClock) -> None:
    desk = Desk("lose", "take")
    won = await candidacy_of(desk).run()
    assert won is not None
    assert won.state == desk.truth.state
    assert (won.state_revision, won.leader_revision) == (11, 11)


async def test_what_never_arrived_is_asked_again(autojump_clock: MockClock) -> None:
    desk = Desk("drop", "drop", "take")
    assert await candidacy_of(desk).run() is not None
    assert len(desk.asked_at) == 3


async def test_another_who_was_faster_has_won(autojump_clock: MockClock) -> None:
    desk = Desk("fail")
    assert await candidacy_of(desk).run() is None
    assert desk.view is not None
    assert candidacy_of(desk)._decide() == Follow("c", 6)


async def test_a_lost_lease_ends_it(autojump_clock: MockClock) -> None:
    with pytest.raises(LeaseLostError):
        await candidacy_of(Desk("lease")).run()


async def test_nobody_asks_with_a_lease_that_may_be_over(autojump_clock: MockClock) -> None:
    desk = Desk()
    desk.lease = LeaseDeadline(1, trio.current_time() - 10)
    assert await candidacy_of(desk).run() is None
    assert desk.asked_at == []


async def test_a_shorter_log_waits_for_its_turn(autojump_clock: MockClock) -> None:
    desk = Desk("take")
    longer = msgspec.structs.replace(NODES["c"], end=200)
    desk.view = desk.truth = msgspec.structs.replace(desk.truth, nodes={**NODES, "c": longer})
    began = trio.current_time()
    assert await candidacy_of(desk).run() is not None
    assert desk.asked_at[0] - began == pytest.approx(0.15)


async def test_what_was_taken_before_the_records_were_read_is_found(
    autojump_clock: MockClock,
) -> None:
    """The watch may know of our success before the answer to the transaction comes."""
    desk = Desk()
    desk.write(
        msgspec.structs.replace(STATE, epoch=6, master="a"),
        LeaderRecord(node="a", session="s-a", epoch=6),
    )
    desk.view = desk.truth
    candidacy = candidacy_of(desk)
    assert candidacy._decide() != Run(6)
    won = await candidacy.run()
    assert won is not None
    assert won.state.master == "a"
