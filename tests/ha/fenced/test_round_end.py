"""How a round ends, and who hears of it."""

from ha.fenced.events import Quarantined
from ha.fenced.replica_role import ReplicaRole
from tests.ha.fenced_parts import open_parts
from tests.support.reasons import words


async def test_a_round_ends_once_and_for_the_first_reason() -> None:
    with open_parts() as parts:
        parts.standing.knows_master("b")
        parts.round_end.begin_again("the log is cut")
        parts.round_end.begin_again("another reason")
        assert parts.round_end.is_over.is_set()
        assert parts.standing.over_because == "the log is cut"
        assert parts.heard == ["ended: the log is cut", "RESTARTING"]


async def test_after_a_failed_sync_nothing_begins_again_in_this_process() -> None:
    with open_parts() as parts:
        parts.store._refuse("a sync failed")
        parts.round_end.begin_again("its disk has failed")
        assert parts.round_end.is_over.is_set()
        assert parts.standing.role is ReplicaRole.QUARANTINED
        assert "sound disk" in parts.replica.quarantine
        assert parts.heard == ["QUARANTINED"]


async def test_an_empty_store_begins_again_whatever_became_of_the_old_one() -> None:
    with open_parts() as parts:
        parts.store._refuse("a sync failed")
        parts.round_end.begin_empty("the store is set aside")
        assert parts.heard == ["ended: the store is set aside", "RESTARTING"]


async def test_in_quarantine_nothing_is_taken_and_the_round_goes_on() -> None:
    with open_parts() as parts:
        parts.store.become_master()
        parts.round_end.quarantine("its log says otherwise")
        assert not parts.round_end.is_over.is_set()
        assert parts.replica.trouble == "its log says otherwise"
        assert "in quarantine" in words(parts.store.refusal)
        assert parts.events == [Quarantined(reason="its log says otherwise")]
        assert parts.heard == ["QUARANTINED"]


async def test_an_operator_lets_a_replica_in_quarantine_begin_empty() -> None:
    with open_parts() as parts:
        parts.round_end.quarantine("its log says otherwise")
        parts.round_end.begin_empty("an operator asked for it")
        assert parts.standing.role is ReplicaRole.RESTARTING
