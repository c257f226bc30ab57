"""What a node gives of its log, and that it gives nothing that is bad."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ha.errors import NotServed, NotServedError
from ha.fenced.epochs import EpochEntry
from ha.fenced.history import history_of
from ha.fenced.served_log import ServedLog
from store import MessageStore
from tandem.wire.peer_log import BYTES_MAX, EpochPart
from tests.ha.fenced_parts import Parts
from tests.ha.fenced_world import FencedWorld
from tests.ha.fingerprinted import flip, take_fingerprints
from tests.ha.world import BODIES, FILE_SIZE_BYTES, put, read_whole_log


class Node:
    """Node `a` with a log of several files, all confirmed; the first of them has a fingerprint."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.parts = Parts(FencedWorld(), store)
        self.end = store.max_physical_offset
        self.served = ServedLog(self.parts.parts)
        self.damage = store.commit_log.damage


@contextmanager
def open_node() -> Iterator[Node]:
    world = FencedWorld()
    with world.open_store("a") as store:
        store.become_master()
        store.confirm(put(store, *BODIES))
        yield Node(store)


async def test_what_is_confirmed_is_given() -> None:
    with open_node() as node:
        log = read_whole_log(node.store)
        assert node.served.data(100, 400) == log[100:400]
        assert node.served.data(FILE_SIZE_BYTES, 2 * FILE_SIZE_BYTES) == log[16384:32768]
        assert node.served.data(node.end - 5, node.end) == log[-5:]


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (-1, 5, NotServed.TOO_MUCH),
        (5, 5, NotServed.TOO_MUCH),
        (9, 5, NotServed.TOO_MUCH),
        (0, BYTES_MAX + 1, NotServed.TOO_MUCH),
        (0, 1 << 62, NotServed.TOO_MUCH),
        (FILE_SIZE_BYTES - 1, FILE_SIZE_BYTES + 1, NotServed.TWO_FILES),
        (1 << 62, (1 << 62) + 1, NotServed.NOT_THERE),
    ],
)
async def test_what_is_too_much_or_not_there_is_not(
    start: int, end: int, reason: NotServed
) -> None:
    with open_node() as node, pytest.raises(NotServedError) as caught:
        node.served.data(start, end)
    assert caught.value.reason is reason


async def test_what_is_not_confirmed_is_given_to_who_has_it_from_the_same_master() -> None:
    with open_node() as node:
        end = put(node.store, b"one more")
        node.parts.replica.epochs.replace((EpochEntry(1, 0, "x"), EpochEntry(2, 20_000, "y")))
        log = read_whole_log(node.store)
        part = node.served.part(end - 5, end)
        assert (part.confirm, part.log_end) == (node.end, end)
        own = history_of(part.epochs, end - 5, end)
        assert node.served.data(end - 5, end, own) == log[-5:]
        others = history_of((EpochPart(2, 20_000, "z"),), end - 5, end)
        for history in ("", others, own[:-1]):
            with pytest.raises(NotServedError) as caught:
                node.served.data(end - 5, end, history)
            assert caught.value.reason is NotServed.NOT_CONFIRMED
            assert node.served.data(100, 200, history) == log[100:200]
        with pytest.raises(NotServedError) as caught:
            node.served.data(end - 5, end + 1, history_of(part.epochs, end - 5, end + 1))
        assert caught.value.reason is NotServed.NOT_THERE


async def test_what_nobody_knows_the_master_of_is_given_only_if_it_is_confirmed() -> None:
    with open_node() as node:
        end = put(node.store, b"one more")
        node.parts.replica.epochs.replace((EpochEntry(1, 0),))
        with pytest.raises(NotServedError) as caught:
            node.served.data(end - 5, end, "")
        assert caught.value.reason is NotServed.NOT_CONFIRMED


async def test_what_is_bad_is_not_given_and_all_else_is() -> None:
    with open_node() as node:
        log = read_whole_log(node.store)
        node.damage.note(200, 300, "a bit has flipped")
        with pytest.raises(NotServedError, match="a bit has flipped") as caught:
            node.served.data(299, 301)
        assert caught.value.reason is NotServed.DAMAGED
        assert node.served.data(300, 310) == log[300:310]
        assert node.served.part(0, FILE_SIZE_BYTES).bad == ((200, 300),)
        assert node.served.part(250, 260).bad == ((250, 260),)
        assert node.served.part(FILE_SIZE_BYTES, FILE_SIZE_BYTES + 1).bad == ()


async def test_a_flip_that_nobody_has_noticed_is_not_given_either() -> None:
    with open_node() as node:
        await take_fingerprints(node.store)
        flip(node.store, 5_000)
        with pytest.raises(NotServedError) as caught:
            node.served.data(100, 110)
        assert caught.value.reason is NotServed.DAMAGED
        assert [(bad.start, bad.end) for bad in node.damage.ranges] == [(0, FILE_SIZE_BYTES)]


async def test_a_fingerprint_is_told_with_the_epochs_of_its_file() -> None:
    with open_node() as node:
        await take_fingerprints(node.store)
        node.parts.replica.epochs.replace((EpochEntry(1, 0, "x"), EpochEntry(2, 20_000, "y")))
        part = node.served.part(FILE_SIZE_BYTES, 2 * FILE_SIZE_BYTES)
        own = node.store.fingerprints.of(FILE_SIZE_BYTES)
        assert own is not None
        assert part.fingerprint is not None
        assert (part.fingerprint.crcs, part.fingerprint.size) == (own.crcs, FILE_SIZE_BYTES)
        assert part.epochs == (EpochPart(1, 0, "x"), EpochPart(2, 20_000, "y"))
        assert (part.node, part.log_start, part.confirm) == ("a", 0, node.end)
        assert node.served.part(node.end - 1, node.end).fingerprint is None


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (1, 1), (0, FILE_SIZE_BYTES + 1)])
async def test_only_of_one_file_is_told(start: int, end: int) -> None:
    with open_node() as node, pytest.raises(NotServedError) as caught:
        node.served.part(start, end)
    assert caught.value.reason is NotServed.TWO_FILES


async def test_a_doubt_is_looked_at_by_fingerprint_where_there_is_one() -> None:
    with open_node() as node:
        await take_fingerprints(node.store)
        node.served.doubted(7, 100)  # where no record begins; but the bytes are as they were
        assert not node.damage
        assert node.parts.standing.doubted == {(7, 100)}  # others may know better
        flip(node.store, 90)
        node.served.doubted(0, 100)
        assert node.damage.within(90, 91) is not None


async def test_a_doubt_is_looked_at_by_record_where_there_is_no_fingerprint() -> None:
    with open_node() as node:
        node.served.doubted(0, 100)
        node.served.doubted(-5, 100)
        node.served.doubted(1 << 40, 1 << 62)
        node.served.doubted(9, 3)
        assert not node.damage
        flip(node.store, 5)
        node.served.doubted(0, 1 << 62)
        assert [bad.start for bad in node.damage.ranges] == [0]
        assert node.damage.bad_bytes == min(node.end, BYTES_MAX)
