"""How a node becomes master, and how it stops being it."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ha.errors import LocalHAError
from ha.fenced.events import Elected, EpochAppended, MasterOpened, SteppedDown
from ha.fenced.lease import LeaseDeadline
from ha.fenced.replica_role import ReplicaRole
from tests.ha.fenced_parts import Parts, open_parts, won_by
from tests.ha.fenced_world import open_world
from tests.support.reasons import words


def kinds(parts: Parts) -> list[type]:
    return [type(event) for event in parts.events]


async def test_each_step_is_done_before_the_next(autojump_clock: MockClock) -> None:
    with open_parts() as parts:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parts.leadership.lead, won_by(parts))
            await wait_all_tasks_blocked()
            assert parts.standing.role is ReplicaRole.MASTER
            assert parts.replica.epochs.last_epoch == 6
            assert kinds(parts) == [Elected, EpochAppended, MasterOpened]
            assert parts.heard == ["OPENING a", "opened 6", "MASTER a"]
            nursery.cancel_scope.cancel()


async def test_a_log_that_grew_during_the_election_is_a_bug() -> None:
    with open_parts() as parts:
        with pytest.raises(LocalHAError, match="has grown past 100"):
            await parts.leadership.lead(won_by(parts, log_end=100))
        assert parts.replica.epochs.last_epoch == 0


async def test_an_epoch_that_cannot_be_written_down_is_given_up(
    autojump_clock: MockClock,
) -> None:
    with open_parts() as parts:
        won = won_by(parts)
        parts.world.disks["a"].capacity_bytes = 0
        await parts.leadership.lead(won)
        assert parts.standing.role is ReplicaRole.RESTARTING
        assert "cannot begin epoch 6" in parts.standing.over_because
        assert "opened 6" not in parts.heard


async def test_without_a_lease_it_does_not_open(autojump_clock: MockClock) -> None:
    with open_parts() as parts:
        parts.session.lease = LeaseDeadline(1, trio.current_time() - 10)
        with trio.move_on_after(1):
            await parts.leadership.lead(won_by(parts))
        assert parts.standing.role is ReplicaRole.RESTARTING
        assert "lease" in parts.standing.over_because
        assert MasterOpened not in kinds(parts)


async def test_the_first_reason_to_step_down_counts(autojump_clock: MockClock) -> None:
    with open_parts() as parts:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parts.leadership.lead, won_by(parts))
            await wait_all_tasks_blocked()
            parts.leadership.lease_lost("the lease is gone")
            parts.leadership.step_down("another reason")
            assert not parts.leadership.close("a third")
            assert parts.standing.over_because == "the lease is gone"
            assert kinds(parts).count(SteppedDown) == 1
            assert "no longer master: the lease is gone" in words(parts.store.refusal)
            nursery.cancel_scope.cancel()


async def test_who_is_not_master_has_nothing_to_give_up() -> None:
    with open_parts() as parts:
        parts.leadership.step_down("a reason")
        parts.leadership.resign("a reason")
        parts.leadership.lease_lost("a reason")
        assert parts.standing.role is ReplicaRole.FOLLOWER
        assert parts.replica.file.stands_back_until == 0.0
        assert parts.heard == []


async def test_the_epoch_of_the_group_is_known_to_followers() -> None:
    with open_parts() as parts:
        assert parts.session.view is not None
        parts.leadership.group_changed(parts.session.view)
        assert parts.standing.epoch == 5
        assert parts.replica.file.seen[0] == 5


async def test_one_that_learns_from_others_that_it_has_resigned_stands_back_too(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        assert first.ha._commands is not None
        leadership = first.ha._commands._leadership
        leadership.step_down("its leader record is gone")
        leadership.resign("an operator asked it to resign")
        assert first.ha.replica.file.stands_back_until > trio.current_time()
        second = await world.master(but=first.name)
        assert second is not first
