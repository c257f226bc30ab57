from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store.log.damage import EVERYTHING, RANGES_MAX, BadRange, LogDamage
from store.machine.errors import DiskFailedError


def _damage(disk: SimulatedDisk | None = None) -> LogDamage:
    return LogDamage(disk or SimulatedDisk(), "/store", lambda: 5)


def _places(damage: LogDamage) -> list[tuple[int, int]]:
    return [(bad.start, bad.end) for bad in damage.ranges]


def test_nothing_is_bad_at_first_and_an_empty_range_never_is() -> None:
    damage = _damage()

    assert not damage
    assert not damage.note(7, 7, "nothing")
    assert not damage
    assert damage.within(0, EVERYTHING) is None


@pytest.mark.parametrize(
    ("start", "end", "is_bad"),
    [
        (0, 10, False),
        (0, 11, True),
        (19, 20, True),
        (20, 30, False),
        (10, 10, False),
        (15, 15, False),
    ],
)
def test_a_range_has_its_first_byte_and_not_the_one_after_its_last(
    start: int,
    end: int,
    is_bad: bool,  # noqa: FBT001
) -> None:
    damage = _damage()
    damage.note(10, 20, "flipped")

    assert (damage.within(start, end) is not None) is is_bad


def test_what_is_noted_is_known_after_a_restart_also_without_power() -> None:
    disk = SimulatedDisk()
    assert _damage(disk).note(10, 20, "flipped")

    (bad,) = _damage(disk.powered_off(Random(1))).ranges

    assert (bad.start, bad.end, bad.reason, bad.found_at_ms) == (10, 20, "flipped", 5)


def test_what_is_whole_again_is_not_bad_after_a_restart_either() -> None:
    disk = SimulatedDisk()
    damage = _damage(disk)
    damage.note(10, 20, "flipped")
    damage.healed(0, 20)

    assert not _damage(disk.powered_off(Random(1)))
    assert not disk.exists(damage.path)


def test_only_news_is_news() -> None:
    damage = _damage()

    assert damage.note(10, 20, "flipped")
    assert not damage.note(12, 18, "again")
    assert damage.note(12, 22, "more")
    assert _places(damage) == [(10, 22)]


def test_a_file_that_cannot_be_read_puts_all_in_doubt_until_it_was_looked_at() -> None:
    disk = SimulatedDisk()
    disk.replace("/store/damage.json", b"[{")

    damage = _damage(disk)

    assert _places(damage) == [(0, EVERYTHING)]
    damage.healed(0, 100)
    assert damage.within(0, 100) is None
    damage.keep_within(0, 200)
    assert _places(damage) == [(100, 200)]


def test_a_disk_that_refuses_keeps_nobody_from_knowing(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    damage = _damage(disk)
    with monkeypatch.context() as broken:

        def refuse(*_: object) -> None:
            raise DiskFailedError("no")

        broken.setattr(disk, "replace", refuse)
        assert damage.note(10, 20, "flipped")
        assert damage
    assert not _damage(disk)

    damage.save()

    assert _places(_damage(disk)) == [(10, 20)]


def test_too_many_are_put_together() -> None:
    damage = _damage()
    ranges = [BadRange(i * 10, i * 10 + 1, "flipped", 0) for i in range(RANGES_MAX + 5)]

    damage._become(ranges)

    assert len(damage.ranges) == RANGES_MAX
    assert damage.ranges[-1].end == (RANGES_MAX + 4) * 10 + 1


_RANGES = st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 30))


@given(st.lists(_RANGES, max_size=12))
def test_ranges_are_the_set_of_bytes_that_were_noted_and_not_healed(
    steps: list[tuple[bool, int, int]],
) -> None:
    damage, expected = _damage(), set[int]()
    for is_bad, start, end in steps:
        if is_bad:
            damage.note(start, end, "flipped")
            expected |= set(range(start, end))
        else:
            damage.healed(start, end)
            expected -= set(range(start, end))

    places = _places(damage)

    assert {byte for start, end in places for byte in range(start, end)} == expected
    assert all(a[1] <= b[0] for a, b in pairwise(places))
    for byte in range(31):
        assert (damage.within(byte, byte + 1) is not None) is (byte in expected)


def test_no_flipped_bit_of_the_file_takes_a_bad_range_for_whole() -> None:
    disk = SimulatedDisk()
    LogDamage(disk, "/store", lambda: 5).note(100, 200, "its CRC")
    whole = disk.read("/store/damage.json") or b""
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        disk.replace("/store/damage.json", bytes(changed))
        assert LogDamage(disk, "/store").within(100, 200) is not None


def test_what_is_bad_is_said_in_words_the_first_range_and_how_many_more() -> None:
    damage = _damage()
    assert damage.in_words() == ""
    damage.note(10, 20, "flipped")
    assert damage.in_words() == "its log is damaged from 10 to 20 (flipped)"
    damage.note(30, 40, "zeros")
    assert damage.in_words().endswith("(flipped), and in 1 other places")


def test_ranges_that_touch_stay_apart_and_one_that_grows_keeps_its_reason() -> None:
    damage = _damage()
    damage.note(10, 20, "first")
    damage.note(20, 30, "second")
    assert [(bad.start, bad.end, bad.reason) for bad in damage.ranges] == [
        (10, 20, "first"),
        (20, 30, "second"),
    ]
    damage.note(5, 12, "third")
    assert [(bad.start, bad.end, bad.reason) for bad in damage.ranges] == [
        (5, 20, "first"),
        (20, 30, "second"),
    ]


def test_what_is_before_the_log_or_after_it_is_forgotten() -> None:
    damage = _damage()
    for start in (0, 90, 190, 300):
        damage.note(start, start + 20, "flipped")

    damage.keep_within(100, 200)

    assert _places(damage) == [(100, 110), (190, 200)]


async def test_each_change_is_told(autojump_clock: MockClock) -> None:
    damage = _damage()
    changes: list[Callable[[], object]] = [
        lambda: damage.note(10, 20, "flipped"),
        lambda: damage.healed(0, 15),
        lambda: damage.healed(0, 20),
    ]
    for change in changes:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(damage.changed.wait)
            await trio.testing.wait_all_tasks_blocked()
            change()
            with trio.fail_after(1):
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert not nursery.child_tasks


def test_what_is_on_the_disk_is_not_written_again() -> None:
    disk = SimulatedDisk()
    damage = _damage(disk)
    damage.note(10, 20, "flipped")
    events: list[str] = []
    disk.on_event = events.append
    damage.save()
    assert events == []
