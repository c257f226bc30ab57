"""Logs that differ at rest are found by comparing, and the wrong one is healed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ha.fenced.comparing_service import OPEN_BLOCK_BYTES
from tandem.wire.fingerprint import crcs_of
from tests.ha.fingerprinted import flip, take_fingerprints
from tests.ha.healing_world import open_group
from tests.ha.world import FILE_SIZE_BYTES

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock

    from ha.fenced.comparing_service import ComparingService
    from tests.ha.fenced_world import Replica


async def test_a_flip_that_was_taken_into_a_fingerprint_is_found_and_healed(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a properties byte, which no record's checksum covers."""
    async with open_group() as group:
        flip(group.first.store, 5_000)
        await take_fingerprints(group.first.store, is_written=False)
        await group.world.wait_for(lambda: group.first.ha.status().healed, 100.0)
        await group.healed(*group.nodes)
        (healed,) = group.first.ha.status().healed
        assert (healed.start, healed.end) == (0, FILE_SIZE_BYTES)
        assert "other replicas have other bytes, and are right" in healed.reason
        found = group.first.store.fingerprints.of(0)
        assert found is not None
        assert found.crcs == crcs_of(group.log[:FILE_SIZE_BYTES])
        assert all(not node.ha.status().undecided for node in group.nodes)


async def test_two_that_read_the_same_are_right_against_one(autojump_clock: MockClock) -> None:
    async with open_group(has_fingerprints=False) as group:
        flip(group.first.store, 5_000)
        for node in group.nodes:
            await take_fingerprints(node.store, is_written=False)
        await group.world.wait_for(lambda: group.first.ha.status().healed, 100.0)
        await group.healed(*group.nodes)


async def test_where_nobody_knows_who_is_right_nothing_is_changed(
    autojump_clock: MockClock,
) -> None:
    async with open_group(has_fingerprints=False) as group:
        flip(group.first.store, 5_000)
        flip(group.second.store, 6_000)
        for node in group.nodes:
            await take_fingerprints(node.store, is_written=False)
        await group.world.wait_for(
            lambda: all(node.ha.status().undecided for node in group.nodes), 100.0
        )
        words = group.first.ha.status().undecided[0]
        assert f"replicas differ from 0 to {FILE_SIZE_BYTES}" in words
        assert all(f"{node.name} " in words for node in group.nodes)
        assert all(not node.ha.status().damage for node in group.nodes)
        flip(group.second.store, 6_000)
        await take_fingerprints(group.second.store, is_written=False)
        await group.world.wait_for(lambda: group.first.ha.status().healed, 200.0)
        await group.world.wait_for(
            lambda: not any(node.ha.status().undecided for node in group.nodes), 2000.0
        )


async def test_what_all_have_confirmed_is_not_asked_for_again(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        comparing = group.first.ha._healing._comparing
        assert comparing is not None
        starts = group.first.store.fingerprints.starts
        await group.world.wait_for(lambda: len(comparing._equal) == len(starts))
        asked: list[int] = []
        served = group.master.ha.served_log
        real = served.part

        def part(start: int, end: int) -> object:
            asked.append(start)
            return real(start, end)

        served.part = part  # type: ignore[method-assign,assignment]
        await comparing.compare()
        assert FILE_SIZE_BYTES not in asked
        fingerprint = group.first.store.fingerprints.of(0)
        assert fingerprint is not None
        group.first.store.fingerprints.drop(0)
        await comparing.compare()
        flip(group.first.store, 5_000)
        await take_fingerprints(group.first.store, is_written=False)
        await comparing.compare()
        assert 0 in asked


def comparing_of(node: Replica) -> ComparingService:
    comparing = node.ha._healing._comparing
    assert comparing is not None
    return comparing


def bad(node: Replica) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in node.store.commit_log.damage.ranges]


async def test_blocks_of_an_open_file_that_are_side_by_side_are_one_range(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        start = group.end - group.end % FILE_SIZE_BYTES
        block = start + 2 * OPEN_BLOCK_BYTES
        for place in (start + 19, block + 5, block + OPEN_BLOCK_BYTES + 5):
            flip(group.first.store, place)
        assert await comparing_of(group.first).compare_open(start, group.end)
        assert bad(group.first) == [
            (start, start + OPEN_BLOCK_BYTES),
            (block, block + 2 * OPEN_BLOCK_BYTES),
        ]
        assert await comparing_of(group.master).compare_open(start, group.end)
        assert not bad(group.master)


async def test_of_an_open_file_only_those_count_who_have_it_from_the_same_masters(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        start = group.end - group.end % FILE_SIZE_BYTES
        flip(group.first.store, start + 19)
        epochs = group.second.ha.replica.epochs
        epochs.replace(tuple(replace(each, id="another") for each in epochs.entries))
        comparing = comparing_of(group.first)
        assert await comparing.compare_open(start, group.end)
        assert not bad(group.first)
        assert f"replicas differ from {start} to" in comparing.undecided[start]
        said = re.findall(r"(\w+) [0-9a-f]{8} \(", comparing.undecided[start])
        assert said == sorted([group.first.name, group.master.name])
        flip(group.first.store, start + 19)
        assert await comparing.compare_open(start + 5, group.end)
        assert not comparing.undecided
