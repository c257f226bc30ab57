"""What a replica does that is not master, a step at a time."""

import logging
from collections.abc import Sequence

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ha.fenced import participation
from ha.fenced.election import Follow, Refuse, Wait, Won
from ha.fenced.epochs import EpochEntry
from ha.fenced.joining import Diverged, NeedsFullCopy, NeedsTruncation
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.standing import Parting
from store import PutMessage
from store.machine.errors import StoreFullError
from store.recovery.truncation import pending_intent
from tandem.coordinator.interface import Compare, Delete, Put, TransactionResult
from tests.ha.fenced_parts import Parts, open_parts
from tests.ha.scripted_session import STATE
from tests.ha.world import DIRECTORY, KEYS


def write(parts: Parts) -> int:
    """Have something in the log; return its end."""
    parts.store.become_master()
    end = parts.store.puts.put_message(PutMessage("T", 0, b"body", b"", 1, bytes(8))).end_offset
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
        told = [(r.levelname, r.getMessage()) for r in caplog.records if "no master" in r.msg]
        assert told == [
            ("INFO", "this node follows no master: c is missing"),
            ("ERROR", "this node follows no master: older than known"),
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


class FakeFollower:
    """Ends at once; says what it was made with."""

    made: list["FakeFollower"]

    def __init__(self, *_: object, **named: object) -> None:
        self.named = named
        self.equal_below = 77
        self.made.append(self)

    async def run(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_master_is_followed_by_its_id_and_under_a_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FakeFollower.made = []
    monkeypatch.setattr(participation, "ReplicaFollower", FakeFollower)
    with open_parts() as parts:
        await parts.participation._act(Follow("b", 6, "id-6"))
        (follower,) = FakeFollower.made
        assert (follower.named["epoch"], follower.named["epoch_id"]) == (6, "id-6")
        assert parts.replica.file.promised == 6
        assert parts.standing.follower is None
        assert parts.standing.parting == Parting(6, 77), "an order may ask how far it was equal"


@pytest.mark.parametrize(("accepted", "may_object"), [(0, True), (4, True), (5, False)])
async def test_nobody_objects_for_what_was_accepted_to_be_lost(
    accepted: int, *, may_object: bool
) -> None:
    with open_parts() as parts:
        parts.replica.epochs.append(5, 0)
        state = msgspec.structs.replace(STATE, loss_accepted=accepted)
        parts.session.view = msgspec.structs.replace(parts.session.truth, state=state)
        assert parts.participation._may_object() is may_object


async def test_a_group_begins_only_with_the_nodes_that_were_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[Compare] = []

    async def transact(compares: Sequence[Compare], _: Sequence[Put | Delete]) -> TransactionResult:
        compared.extend(compares)
        await trio.lowlevel.checkpoint()
        return TransactionResult(succeeded=False, revision=10)

    with open_parts() as parts:
        monkeypatch.setattr(parts.session, "transact", transact)
        parts.session.view = msgspec.structs.replace(
            parts.session.truth, node_revisions={"a": 3, "b": 4, "c": 5}
        )
        await parts.participation._bootstrap(STATE)
    nodes = [Compare(KEYS.node("a"), 3), Compare(KEYS.node("b"), 4), Compare(KEYS.node("c"), 5)]
    assert compared == [Compare(KEYS.state, 0), Compare(KEYS.leader, 0), *nodes]


async def test_each_epoch_that_is_won_has_an_id_of_its_own(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    won: list[Won] = []

    async def lead(what: Won) -> None:
        await trio.lowlevel.checkpoint()
        won.append(what)

    with open_parts("take") as parts:
        monkeypatch.setattr(parts.leadership, "lead", lead)
        state = msgspec.structs.replace(STATE, isr={"a": parts.replica.file.incarnation})
        parts.session.truth = msgspec.structs.replace(parts.session.truth, state=state)
        parts.session.view = parts.session.truth
        await parts.participation._run_for(6)
    assert len(won[0].state.epoch_id) == 16
