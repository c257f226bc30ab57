from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ha.errors import EpochConflictError
from ha.fenced.epochs import (
    EpochEntries,
    EpochEntry,
    adopted,
    consistent_point,
    end_of_entry,
    entry_at,
    expect_rising,
)


def listed(*pairs: tuple[int, int]) -> EpochEntries:
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)


def test_bytes_know_their_epoch() -> None:
    entries = listed((2, 100), (5, 300))
    found = {offset: entry_at(entries, offset) for offset in (99, 100, 299, 300, 10**9)}
    assert [entry and entry.epoch for entry in found.values()] == [None, 2, 2, 5, 5]
    assert [end_of_entry(entries, epoch, 999) for epoch in (0, 2, 5)] == [100, 300, 999]


# Where two logs part


@pytest.mark.parametrize(
    ("own", "own_end", "theirs", "their_end", "point"),
    [
        ((), 0, ((1, 0),), 100, None),
        (((1, 0),), 100, (), 0, None),
        (((1, 0),), 100, ((1, 0),), 70, 70),
        (((1, 0),), 70, ((1, 0),), 100, 70),
        # An old master's tail of epoch 5; the new one went on from 1000.
        (((4, 0), (5, 1000)), 1200, ((4, 0), (6, 1000)), 1300, 1000),
        (((4, 0), (5, 900)), 1100, ((4, 0), (5, 900), (6, 1000)), 1200, 1000),
        # Idle epochs in a row.
        (((4, 0), (5, 1000)), 1000, ((4, 0), (8, 1000)), 1000, 1000),
        (((4, 0), (5, 1000)), 1000, ((4, 0), (5, 1000), (6, 2000)), 2000, 1000),
        # An entry behind the end of its own log says nothing.
        (((4, 0), (5, 5000)), 4800, ((4, 0), (5, 5000)), 6000, 4800),
        (((4, 0),), 4800, ((4, 0), (5, 5000)), 4900, 4800),
        (((5, 5000),), 4800, ((5, 5000),), 6000, None),
        # The beginning of a list has gone with its files.
        (((4, 0), (5, 1000)), 1500, ((5, 1000), (6, 1400)), 2000, 1400),
        (((1, 0),), 100, ((2, 0),), 0, 0),
        (((1, 0), (3, 50)), 100, ((2, 0),), 4000, 0),
        (((2, 0),), 500, ((5, 1000),), 2000, None),
        (((2, 0),), 1500, ((5, 1000),), 2000, None),
    ],
)
def test_where_two_logs_part(
    own: tuple[tuple[int, int], ...],
    own_end: int,
    theirs: tuple[tuple[int, int], ...],
    their_end: int,
    point: int | None,
) -> None:
    assert consistent_point(listed(*own), own_end, listed(*theirs), their_end) == point


def test_an_epoch_with_two_beginnings_is_an_alarm() -> None:
    with pytest.raises(EpochConflictError, match="epoch 4 begins at 10 here and at 20 there"):
        consistent_point(listed((4, 10), (5, 50)), 90, listed((4, 20), (5, 50)), 90)


def test_one_number_with_two_ids_is_two_epochs() -> None:
    ours = (*listed((4, 10)), EpochEntry(5, 50, "b"), EpochEntry(6, 70, "b"))
    theirs = (*listed((4, 10)), EpochEntry(5, 50, "a"), EpochEntry(6, 60, "a"))
    assert consistent_point(ours, 90, theirs, 90) == 50
    assert consistent_point(ours[1:], 90, theirs[1:], 90) is None
    assert consistent_point(ours, 90, listed((4, 10), (5, 50)), 90) == 70, "unknown ids fit"
    later = EpochEntry(7, 80)
    assert consistent_point((*ours, later), 90, (*theirs, later), 90) == 50, "nothing above counts"


class Node:
    """A log of bytes that each know their writer, and the list of it."""

    def __init__(self) -> None:
        self.log: list[tuple[int, int]] = []
        self.entries: EpochEntries = ()

    @property
    def end(self) -> int:
        return len(self.log)

    def begin(self, epoch: int, start: int) -> None:
        kept = tuple(entry for entry in self.entries if entry.start < start)
        self.entries = (*kept, EpochEntry(epoch, start))

    def follow(self, master: Node, byte_count: int) -> None:
        """Cut, adopt and copy as a follower does."""
        cut = consistent_point(self.entries, self.end, master.entries, master.end)
        common = common_prefix(self.log, master.log)
        if cut is None:
            assert common == 0 or not self.entries
            cut = 0
        assert cut == common
        del self.log[cut:]
        self.entries = adopted(self.entries, master.entries, cut)
        for byte in master.log[cut : cut + byte_count]:
            entry = entry_at(master.entries, self.end)
            assert entry is not None
            if entry.epoch > self.entries[-1].epoch:
                self.begin(entry.epoch, self.end)
            self.log.append(byte)


def common_prefix(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


ACTIONS = st.tuples(st.sampled_from(["elect", "write", "follow"]), st.integers(0, 3))


@pytest.mark.slow
@settings(max_examples=4 * settings().max_examples)
@given(st.lists(st.tuples(ACTIONS, st.integers(0, 5)), max_size=60))
def test_the_cut_is_where_the_logs_part_whoever_was_master(
    steps: list[tuple[tuple[str, int], int]],
) -> None:
    """Any node may win, with any log, and old masters write on: what the lists say stays true."""
    nodes = [Node() for _ in range(4)]
    master, epoch = nodes[0], 1
    master.begin(1, 0)
    reigns = {0: 1}
    for (action, index), count in steps:
        node = nodes[index]
        if action == "elect":
            epoch += 1
            master = node
            node.begin(epoch, node.end)
            reigns[index] = epoch
        elif action == "write" and reigns.get(index):
            node.log += [(reigns[index], node.end + n) for n in range(count)]
        elif action == "follow" and node is not master:
            node.follow(master, count)
            reigns.pop(index, None)
        for one in nodes:
            expect_rising(one.entries)
            for offset, byte in enumerate(one.log):
                entry = entry_at(one.entries, offset)
                assert entry is not None
                assert entry.epoch == byte[0]


@given(st.binary(min_size=8, max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_the_cut_is_in_both_logs_and_the_same_seen_from_either_side(
    seed: bytes, own_end: int, their_end: int
) -> None:
    """Also for lists that no group ever had."""
    half = len(seed) // 2
    lists = []
    for part in (seed[:half], seed[half:]):
        epochs = sorted({byte % 16 + 1 for byte in part})
        starts = sorted({byte // 8 for byte in part})
        lists.append(listed(*zip(epochs, starts, strict=False)))
    own, theirs = lists
    try:
        point = consistent_point(own, own_end, theirs, their_end)
    except EpochConflictError:
        with pytest.raises(EpochConflictError):
            consistent_point(theirs, their_end, own, own_end)
        return
    assert point == consistent_point(theirs, their_end, own, own_end)
    if point is not None:
        assert 0 <= point <= min(own_end, their_end)
        expect_rising(adopted(own, theirs, point))
