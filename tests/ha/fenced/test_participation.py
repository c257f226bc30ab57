"""What a replica does that is not master, a step at a time."""

import logging

import pytest
import trio
from trio.testing import MockClock

from ha.fenced.election import Follow, Refuse, Wait
from ha.fenced.epochs import EpochEntry
from ha.fenced.joining import Diverged, NeedsFullCopy, NeedsTruncation
from ha.fenced.replica_role import ReplicaRole
from store import PutMessage
from store.machine.errors import StoreFullError
from store.recovery.truncation import pending_intent
from tests.ha.fenced_parts import Parts, open_parts
from tests.ha.world import DIRECTORY


def write(parts: Parts) -> int:
    """Have something in the log; return its end."""
    parts.store.become_master()
    end = parts.store.put_message(PutMessage("T", 0, b"body", b"", 1, bytes(8))).end_offset
    parts.store.announce()
    return end


def order(end: int) -> NeedsTruncation:
    return NeedsTruncation(cut=0, end=end, entries=(EpochEntry(1, 0),), master="b", epoch=2)


async def test_a_log_to_be_cut_ends_the_round_once_the_intent_is_on_disk() -> None:
    with open_parts() as parts:
        parts.participation._take(order(write(parts)))
        intent = pending_intent(parts.world.disks["a"], DIRECTORY)
        assert intent is not None
        assert intent.cut == 0
        assert parts.round_end.is_over.is_set()
        assert parts.heard[0].startswith("ended: the log is cut at 0")


async def test_what_cannot_be_written_down_does_not_happen() -> None:
    with open_parts() as parts:
        end = write(parts)
        parts.world.disks["a"].capacity_bytes = 0
        with pytest.raises(StoreFullError):
            parts.participation._take(order(end))
        assert parts.standing.role is ReplicaRole.FOLLOWER
        assert not parts.round_end.is_over.is_set()


async def test_a_log_that_confirmed_messages_contradict_is_left_alone() -> None:
    with open_parts() as parts:
        end = write(parts)
        parts.store.confirm(end)
        parts.participation._take(order(end))
        assert parts.standing.role is ReplicaRole.QUARANTINED
        assert pending_intent(parts.world.disks["a"], DIRECTORY) is None


async def test_a_replica_outside_of_the_in_sync_set_copies_the_log_anew() -> None:
    with open_parts() as parts:
        before = parts.replica.file.incarnation
        parts.participation._take(NeedsFullCopy(reason="the master's log begins later"))
        assert parts.standing.role is ReplicaRole.RESTARTING
        assert parts.replica.file.incarnation != before


async def test_as_long_as_nothing_is_known_of_the_set_a_log_is_kept() -> None:
    with open_parts() as parts:
        parts.session.view = None
        parts.participation._take(NeedsFullCopy(reason="the master's log begins later"))
        assert parts.standing.role is ReplicaRole.QUARANTINED


async def test_two_histories_are_shown_to_an_operator() -> None:
    with open_parts() as parts:
        parts.participation._take(Diverged(reason="the logs part at 5"))
        assert parts.standing.role is ReplicaRole.QUARANTINED
        assert parts.replica.quarantine == "the logs part at 5"


async def test_a_master_that_is_not_in_cluster_yaml_is_not_followed(
    autojump_clock: MockClock,
) -> None:
    with open_parts() as parts:
        start = trio.current_time()
        await parts.participation._act(Follow("x", 9))
        assert trio.current_time() - start == 1.0
        assert parts.standing.waits_for == "master x is no node of this group in cluster.yaml"
        assert parts.replica.file.promised == 0


async def test_why_it_follows_nobody_is_logged_once_per_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with open_parts() as parts, caplog.at_level(logging.INFO):
        for decision in (Wait("c is missing"), Wait("c is missing"), Refuse("older than known")):
            parts.participation._note_decision(decision)
        told = [(r.levelname, r.getMessage()) for r in caplog.records if "nobody" in r.msg]
        assert told == [
            ("INFO", "follows nobody: c is missing"),
            ("ERROR", "follows nobody: older than known"),
        ]
        parts.participation._note_decision(Follow("b", 5))
        assert parts.standing.waits_for == ""


async def test_an_election_that_another_won_leaves_a_follower(autojump_clock: MockClock) -> None:
    with open_parts("fail") as parts:
        parts.replica.file.renew()
        await parts.participation._run_for(6)
        assert parts.standing.role is ReplicaRole.FOLLOWER
        assert parts.heard == ["CANDIDATE", "FOLLOWER"]
        assert parts.replica.file.promised == 6
