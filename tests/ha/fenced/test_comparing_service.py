"""Logs that differ at rest are found by comparing, and the wrong one is healed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandem.wire.fingerprint import crcs_of
from tests.ha.fingerprinted import flip, take_fingerprints
from tests.ha.healing_world import open_group
from tests.ha.world import FILE_SIZE_BYTES

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock


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
