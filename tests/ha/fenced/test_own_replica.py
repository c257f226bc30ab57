"""What a replica says of itself, and what it writes down before others rely on it."""

import random

import msgspec
import pytest

from ha.fenced.completeness import Completeness
from ha.fenced.epochs import EpochEntry
from ha.fenced.events import HAEvent, Promised, TruncationDecided
from ha.fenced.group_view import GroupView
from ha.fenced.joining import NeedsTruncation
from ha.fenced.own_replica import OwnReplica
from store import MessageStore, PutMessage
from store.machine.errors import StoreFullError
from store.recovery.truncation import pending_intent
from tandem.cluster_file.choices import AckLevel
from tandem.wire.group_state import GroupState
from tests.ha.world import DIRECTORY, World, fenced_config
from tests.support.reasons import words

STATE = GroupState(epoch=1, master="b", isr={}, min_isr=2)


class Node:
    """A store of node `a`, and its replica."""

    def __init__(self) -> None:
        self.world = World()
        self.events: list[HAEvent] = []

    def open(
        self,
        seed: int = 1,
        boot_id: str = "boot-1",
        ack_level: AckLevel = AckLevel.WRITTEN,
        process: Completeness | None = None,
    ) -> tuple[MessageStore, OwnReplica]:
        store = self.world.open_store("a")
        own = OwnReplica(
            fenced_config("a", ack_level=ack_level),
            store,
            self.world.disks["a"],
            random.Random(seed),
            self.events.append,
            process,
        )
        own.begin(boot_id)
        return store, own


def fill(store: MessageStore, count: int) -> list[int]:
    """Put messages; return where each ends."""
    store.become_master()
    message = PutMessage("T", 0, b"body", b"", 1, bytes(8))
    ends = [store.puts.put_message(message).end_offset for _ in range(count)]
    store.announce()
    return ends


async def test_it_describes_itself() -> None:
    store, own = Node().open()
    end = fill(store, 2)[-1]
    own.epochs.append(3, 0)
    own.promise(4)
    record, facts = own.describe(), own.facts()
    assert (record.node, record.session) == ("a", own.session_id)
    assert (record.incarnation, record.end) == (own.file.incarnation, end)
    assert (record.epoch, record.promised, record.trouble) == (3, 4, "")
    assert record.replication_address == "127.0.0.1:10913"
    assert (facts.log_epoch, facts.log_end, facts.promised) == (3, end, 4)
    assert facts.members == ("a", "b", "c")


async def test_what_is_damaged_is_in_what_it_says_of_itself() -> None:
    store, own = Node().open()
    assert own.describe().damage == own.facts().damage == ""
    store.commit_log.damage.note(70, 80, "a bit has flipped")
    words = "its log is damaged from 70 to 80 (a bit has flipped)"
    assert own.describe().damage == own.facts().damage == own.damage == words
    store.commit_log.damage.note(0, 9, "zeros")
    assert own.damage == "its log is damaged from 0 to 9 (zeros), and in 1 other places"


async def test_that_it_has_everything_is_known_for_as_long_as_the_process_lives() -> None:
    node, process = Node(), Completeness()
    store, own = node.open(process=process)
    end = fill(store, 3)[-1]
    assert not own.describe().is_complete
    own.has_everything()
    assert own.describe().is_complete
    assert own.facts().is_complete
    own.round_ends()
    store.close()
    store, own = node.open(process=process)
    assert store.max_physical_offset == end
    assert own.describe().is_complete
    own.file.renew_keeping_log(end)
    assert not own.describe().is_complete, "another replica, of which nothing was seen"
    store.close()
    store, own = node.open()
    assert not own.describe().is_complete, "another process"
    store.close()


async def test_a_cut_takes_nothing_that_has_to_be_there_afterwards() -> None:
    node, process = Node(), Completeness()
    store, own = node.open(process=process)
    ends = fill(store, 3)
    own.has_everything()
    own.want_cut(NeedsTruncation(cut=ends[1], end=ends[2], entries=(), master="b", epoch=2))
    own.round_ends()
    store.close()
    store, own = node.open(process=process)
    assert store.max_physical_offset == ends[1]
    assert own.describe().is_complete
    store.close()


async def test_a_promise_is_told_once_it_is_kept() -> None:
    node = Node()
    _, own = node.open()
    own.promise(4)
    own.promise(4)
    assert node.events == [Promised(epoch=4)]
    node.world.disks["a"].capacity_bytes = 0
    with pytest.raises(StoreFullError):
        own.promise(5)
    assert node.events == [Promised(epoch=4)]


async def test_epochs_behind_the_end_of_the_log_are_forgotten() -> None:
    node = Node()
    store, own = node.open()
    end = fill(store, 1)[0]
    own.epochs.replace((EpochEntry(1, 0), EpochEntry(2, end), EpochEntry(3, end + 1)))
    store.close()
    _, again = node.open(seed=2)
    assert again.epochs.entries == (EpochEntry(1, 0), EpochEntry(2, end))


async def test_a_cut_is_carried_out_by_the_next_opening_and_keeps_the_name() -> None:
    node = Node()
    store, own = node.open()
    ends = fill(store, 3)
    own.note_progress()
    own.epochs.append(1, 0)
    order = NeedsTruncation(
        cut=ends[0], end=ends[2], entries=(EpochEntry(1, 0),), master="b", epoch=2
    )
    why = own.want_cut(order)
    assert f"cut at {ends[0]}" in why
    assert node.events == [TruncationDecided(cut=ends[0], end=ends[2], confirm=0)]
    assert pending_intent(node.world.disks["a"], DIRECTORY) is not None
    store.close()
    own.stopped_clean()
    store, again = node.open(seed=2)
    assert store.max_physical_offset == ends[0]
    assert again.file.incarnation == own.file.incarnation
    assert again.file.acked == ends[0]
    assert again.session_id != own.session_id


async def test_a_store_that_is_set_aside_leaves_another_replica() -> None:
    node = Node()
    store, own = node.open()
    fill(store, 1)
    own.promise(7)
    before = own.file.incarnation
    assert own.want_set_aside("for a test") == f"replica-{before}"
    store.close()
    own.stopped_clean()
    store, again = node.open(seed=2)
    assert store.max_physical_offset == 0
    assert again.file.incarnation not in ("", before)
    assert again.file.promised == 7


async def test_a_store_is_set_aside_only_once_it_is_known_as_another_replicas() -> None:
    """An empty log under the old name would count as having everything."""
    node = Node()
    store, own = node.open()
    fill(store, 1)
    disk = node.world.disks["a"]
    written: list[str] = []
    disk.on_event = lambda event: written.append(event.split()[1].rpartition("/")[2])
    own.want_set_aside("for a test")
    names = [name for name in written if name in ("replica.json", "set-aside.json")]
    assert names == ["replica.json", "set-aside.json"]


async def test_a_cut_replaces_all_that_says_what_is_in_the_log() -> None:
    node = Node()
    store, own = node.open()
    ends = fill(store, 3)
    entries = (EpochEntry(1, 0, "1f"),)
    order = NeedsTruncation(cut=ends[0], end=ends[2], entries=entries, master="b", epoch=2)
    own.want_cut(order)
    store.close()
    own.stopped_clean()
    _, again = node.open(seed=2)
    assert again.epochs.entries == entries


@pytest.mark.parametrize("level", [AckLevel.WRITTEN, AckLevel.FLUSHED])
async def test_the_progress_that_is_noted_is_what_an_acknowledgement_stands_on(
    level: AckLevel,
) -> None:
    store, own = Node().open(ack_level=level)
    fill(store, 1)
    store.sync_log()
    synced = store.max_physical_offset
    end = fill(store, 1)[-1]
    assert store.flushed_where == synced < end
    own.note_progress()
    assert own.file.acked == (end if level is AckLevel.WRITTEN else synced)


async def test_what_cannot_be_noted_is_no_reason_to_stop() -> None:
    node = Node()
    store, own = node.open()
    fill(store, 1)
    node.world.disks["a"].capacity_bytes = 0
    own.note_progress()
    own.stand_back(5.0)
    own.stopped_clean()
    assert own.file.acked == 0
    assert own.file.stands_back_until == 0.0


async def test_a_stop_after_a_failed_disk_is_not_clean() -> None:
    node = Node()
    store, own = node.open()
    store._refuse("a sync failed")
    assert "a sync failed" in words(own.trouble)
    own.stopped_clean()
    store.close()
    _, again = node.open(seed=2, boot_id="boot-2")
    assert again.file.incarnation != own.file.incarnation


async def test_a_failed_sync_is_noted_as_soon_as_the_disk_takes_it() -> None:
    node = Node()
    store, own = node.open()
    assert not own.note_failed_sync()
    store._refuse("a sync failed")
    capacity_bytes = node.world.disks["a"].capacity_bytes
    node.world.disks["a"].capacity_bytes = 0
    assert not own.note_failed_sync()
    node.world.disks["a"].capacity_bytes = capacity_bytes
    assert own.note_failed_sync()
    store.close()
    _, again = node.open(seed=2)
    assert again.file.incarnation != own.file.incarnation


async def test_quarantine_is_a_trouble() -> None:
    _, own = Node().open()
    assert own.trouble is None
    own.quarantine = "its log says otherwise"
    assert own.describe().trouble == "its log says otherwise"


# what the coordinator remembers


def remembered(own: OwnReplica, **changes: object) -> GroupView:
    life = own.next_life(GroupView(revision=1))
    assert life is not None
    life = msgspec.structs.replace(life, **changes)
    return GroupView(revision=2, state=STATE, lives={"a": life})


async def test_what_the_coordinator_knows_to_be_confirmed_is_confirmed() -> None:
    """The node's own note of it may have been too old when its process ended."""
    node = Node()
    store, own = node.open()
    end = fill(store, 3)[-1]
    own.epochs.append(1, 0)
    store.close()
    store, own = node.open()
    own.saw(remembered(own, confirm=end, epoch=1))
    assert own.is_judged
    assert store.confirm_offset == end
    assert own.file.incarnation == remembered(own).lives["a"].incarnation


async def test_an_older_copy_is_another_replica_once() -> None:
    node = Node()
    store, own = node.open()
    end = fill(store, 1)[-1]
    before = own.file.incarnation
    view = remembered(own, confirm=end + 1, epoch=1)
    own.saw(view)
    renewed = own.file.incarnation
    assert renewed != before
    own.judge(view)
    assert own.file.incarnation == renewed
    assert own.file.acked == end


async def test_a_directory_older_than_another_life_is_another_replica_once() -> None:
    """A node that cannot register yet judges again and again."""
    _, own = Node().open()
    view = remembered(own, life=5, token="another", confirm=0)
    own.judge(view)
    renewed = own.file.incarnation
    assert renewed != view.lives["a"].incarnation
    own.judge(view)
    assert own.file.incarnation == renewed


async def test_what_another_replica_of_this_name_has_confirmed_is_not_confirmed_here() -> None:
    store, own = Node().open()
    end = fill(store, 1)[-1]
    own.saw(remembered(own, incarnation="another", confirm=end, epoch=1))
    assert store.confirm_offset == 0


@pytest.mark.parametrize("ack_level", AckLevel)
async def test_a_failed_sync_that_its_disk_does_not_note_is_known_by_the_coordinator(
    ack_level: AckLevel,
) -> None:
    """It is another replica at its next start, before it counts for anything."""
    node = Node()
    store, own = node.open(ack_level=ack_level)
    fill(store, 3)
    own.saw(GroupView(revision=1, state=STATE))
    own.remembered(remembered(own).lives["a"])
    before = own.file.incarnation
    store._refuse("a sync failed")
    node.world.disks["a"].capacity_bytes = 0
    assert not own.note_failed_sync()
    view = remembered(own)
    # While this life goes on, what it wrote is in the page cache. It registers again, and again.
    for _ in range(2):
        own.judge(view)
        assert own.file.incarnation == before
        assert own.next_life(view) == view.lives["a"]
    node.world.disks["a"].capacity_bytes = 1 << 40
    store.close()
    _, again = node.open(seed=2, ack_level=ack_level)
    assert again.file.incarnation == before, "the disk took the note: nothing is tested"
    again.saw(view)
    assert again.is_judged
    renewed = again.file.incarnation
    assert (renewed != before) == (ack_level is AckLevel.WRITTEN)
    following = again.next_life(view)
    assert following is not None
    assert following.failed == ""
    again.judge(view)
    again.judge(msgspec.structs.replace(view, lives={"a": following}))
    assert again.file.incarnation == renewed


async def test_a_disk_that_cannot_take_the_new_name_does_not_register() -> None:
    node = Node()
    store, own = node.open()
    store._refuse("a sync failed")
    view = remembered(own)
    store.close()
    _, again = node.open(seed=2)
    before = again.file.incarnation
    node.world.disks["a"].capacity_bytes = 0
    with pytest.raises(StoreFullError):
        again.judge(view)
    again.saw(view)
    assert not again.is_judged
    assert again.file.incarnation == before


async def test_a_log_that_lacks_what_was_accepted_to_be_lost_is_no_older_copy() -> None:
    store, own = Node().open()
    end = fill(store, 1)[-1]
    before = own.file.incarnation
    view = remembered(own, confirm=end + 1, epoch=1)
    state = msgspec.structs.replace(STATE, loss_accepted=1)
    own.saw(msgspec.structs.replace(view, state=state))
    assert own.is_judged
    assert own.file.incarnation == before


async def test_a_coordinator_with_a_newer_record_is_believed_at_the_first_look() -> None:
    """It may have been recovered while this node was down; the node registers with a life then."""
    node = Node()
    store, own = node.open()
    own.saw(GroupView(revision=1, state=STATE))
    own.remembered(remembered(own).lives["a"])
    store.close()
    _, again = node.open(seed=2)
    newer = GroupView(revision=5, state=msgspec.structs.replace(STATE, version=9))
    again.judge(newer)
    assert not again.coordinator_is_old
    assert again.next_life(newer) is not None


async def test_a_new_life_comes_after_all_that_the_coordinator_knows() -> None:
    _, own = Node().open()
    following = own.next_life(remembered(own, life=5, token="another"))
    assert following is not None
    assert following.life == 6


async def test_what_is_said_again_in_one_life_is_of_the_same_life() -> None:
    _, own = Node().open()
    view = remembered(own)
    assert own.next_life(view) == view.lives["a"]


async def test_an_older_coordinator_is_believed_when_somebody_has_written_anew() -> None:
    node = Node()
    store, own = node.open()
    own.saw(GroupView(revision=1, state=STATE))
    life = own.next_life(GroupView(revision=1))
    assert life is not None
    own.remembered(life)
    store.close()
    _, again = node.open(seed=2)
    again.saw(GroupView(revision=1, state=STATE))
    assert "does not know this node" in words(again.coordinator_is_old)
    assert again.next_life(GroupView(revision=1)) is None
    assert again.describe().coordinator_is_old
    newer = msgspec.structs.replace(STATE, version=9)
    again.saw(GroupView(revision=5, state=newer))
    assert not again.coordinator_is_old
    following = again.next_life(GroupView(revision=5))
    assert following is not None
    assert following.life == life.life + 1
