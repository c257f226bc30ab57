"""The extension of a queue: addresses, files that close themselves, and what a crash leaves."""

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store.log.log_end import DispatchRequest
from store.machine.errors import CorruptLogError, LogFault
from store.machine.real_disk import RealDisk
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_ext import ConsumeQueueExt, CqExtUnit
from tandem.wire.store_layout import (
    EXT_ADDRESS_MAX,
    EXT_UNIT_BYTES_MAX,
    ext_address,
    ext_offset,
    is_ext_address,
)
from tests.support.logged import logged
from tests.support.paths import GOLDEN

SIZE = 100
DIRECTORY = "/ext/T/0"
QUEUE_DIRECTORY = "/cq/T/0"
TAG = 0x78
GOLDEN_QUEUE = GOLDEN / "ext" / "consumequeue" / "T" / "0"
GOLDEN_EXT = GOLDEN / "ext" / "consumequeue_ext" / "T" / "0"


def an_ext(disk: SimulatedDisk | None = None, count: int = 0, size: int = SIZE) -> ConsumeQueueExt:
    ext = ConsumeQueueExt(DIRECTORY, size, disk or SimulatedDisk())
    for number in range(count):
        ext.put(a_unit(number))
    return ext


def a_unit(number: int = 0, bits: int = 0) -> CqExtUnit:
    return CqExtUnit(TAG + number, 1000 + number, bytes(range(1, bits + 1)))


def recovered(disk: SimulatedDisk, size: int = SIZE) -> ConsumeQueueExt:
    ext = an_ext(disk, size=size)
    ext.load()
    ext.recover()
    return ext


def a_queue(disk: SimulatedDisk, size: int = SIZE) -> ConsumeQueue:
    return ConsumeQueue(QUEUE_DIRECTORY, "T", 0, 200, disk, ConsumeQueueExt(DIRECTORY, size, disk))


def a_queue_again(disk: SimulatedDisk) -> ConsumeQueue:
    queue = a_queue(disk)
    queue.load()
    queue.recover()
    return queue


def a_request(number: int, *, tags_code: int | None = None) -> DispatchRequest:
    return DispatchRequest(
        topic="T",
        queue_id=0,
        offset=number * 100,
        size=100,
        tags_code=TAG + number if tags_code is None else tags_code,
        queue_offset=number,
        store_timestamp_ms=1000 + number,
        sys_flag=0,
    )


def codes_of(queue: ConsumeQueue) -> list[int]:
    """The tags codes as a reader sees them."""
    found: list[int] = []
    while len(found) < queue.next_offset:
        found += [code for _, _, code in queue.units(len(found), 100)]
    return found


# -- units and addresses --------------------------------------------------------------------------


def test_the_golden_units() -> None:
    """CqExtUnit.write: no bit map; the first addresses; -1 where the fifth does not fit."""
    disk = SimulatedDisk()
    ext = an_ext(disk)
    addresses = [ext.put(CqExtUnit(TAG, 0x1A1FB707D39)) for _ in range(5)]
    assert addresses[:2] == [-(2**63), -(2**63) + 0x14]
    assert addresses[4] == -(2**63) + 0x64
    first = disk.read(f"{DIRECTORY}/{0:020d}") or b""
    unit = bytes.fromhex("0014 0000000000000078 000001a1fb707d39 0000")
    assert first == unit * 4 + b"\xff\xff" + bytes(18)
    assert (disk.read(f"{DIRECTORY}/{100:020d}") or b"") == unit + bytes(80)


def test_what_was_put_is_found_again() -> None:
    ext = an_ext(size=1000)
    units = [a_unit(number, bits=5 * number) for number in range(40)]
    addresses = [ext.put(unit) for unit in units]
    assert [ext.get(address) for address in addresses if address is not None] == units
    assert all(address is not None and is_ext_address(address) for address in addresses)


@pytest.mark.parametrize("bits", [77, 100, EXT_UNIT_BYTES_MAX - 19])
def test_a_unit_too_large_for_a_file_is_not_put(bits: int) -> None:
    """ConsumeQueueExt.put fills three files with nothing and gives up."""
    disk = SimulatedDisk()
    ext = an_ext(disk)
    assert ext.put(a_unit(bits=77 - 1)) is not None
    assert ext.put(CqExtUnit(1, 1, bytes(bits))) is None
    assert len(disk.list_files(DIRECTORY)) == 1


def test_a_full_disk_makes_plain_tags_codes(caplog: pytest.LogCaptureFixture) -> None:
    """ConsumeQueue.putMessagePositionInfoWrapper: the message is queued all the same."""
    disk = SimulatedDisk(capacity_bytes=300)
    queue = a_queue(disk)
    for number in range(8):
        queue.dispatch(a_request(number))
    assert codes_of(queue) == [TAG + number for number in range(8)]
    assert [is_ext_address(queue.unit(n)[2]) for n in range(8)] == [True] * 4 + [False] * 4
    assert len(logged(caplog, "store.queue.consume_queue_ext")) == 1
    disk.capacity_bytes = 1000
    queue.dispatch(a_request(8))
    assert queue.unit(8)[2] == ext_address(100)


@pytest.mark.parametrize(
    "address",
    [
        *(0, 1, TAG, EXT_ADDRESS_MAX + 1, EXT_ADDRESS_MAX),
        *map(ext_address, (1, 60, 80, 99, 100, 10**9)),
    ],
)
def test_an_address_that_leads_nowhere_is_no_unit(address: int) -> None:
    ext = an_ext(count=3)
    assert ext.get(address) is None
    assert ext.tags_code(address) == address


AFTER_A_HOLE = bytes(147) + b"\x14" + bytes(152)
"""A unit at 146, but none at 100, where its file begins."""


@example(AFTER_A_HOLE, 146)
@given(st.binary(min_size=300, max_size=300), st.integers(0, 310))
def test_no_bytes_stop_or_mislead_it(content: bytes, offset: int) -> None:
    """Recovery ends, is idempotent, and every unit found lies in its file."""
    disk = SimulatedDisk()
    for start in (0, 100, 200):
        disk.create(f"{DIRECTORY}/{start:020d}", SIZE).buffer[:] = content[start : start + SIZE]
    ext = recovered(disk)
    unit = ext.get(ext_address(offset))
    assert unit is None or 20 + len(unit.filter_bit_map) <= SIZE - 4 - offset % SIZE
    ext.truncate_by_max_address(ext_address(offset))
    end = ext.files.max_offset
    address = ext.put(a_unit())
    assert address is not None
    assert ext_offset(address) >= end or end % SIZE > SIZE - 24
    assert ext.get(address) == a_unit()
    assert recovered(disk.crashed()).get(address) == a_unit()


@given(st.lists(st.integers(20, 40), max_size=6), st.binary(max_size=60))
def test_units_in_front_of_damage_survive(sizes: list[int], damage: bytes) -> None:
    disk = SimulatedDisk()
    ext = an_ext(disk, size=300)
    units = [CqExtUnit(n, n, bytes(size - 20)) for n, size in enumerate(sizes)]
    addresses = [ext.put(unit) or 0 for unit in units]
    if units:
        end = ext.files.max_offset
        disk.open(f"{DIRECTORY}/{0:020d}").buffer[end : end + len(damage)] = damage
    again = recovered(disk, 300)
    assert [again.get(address) for address in addresses] == units


# -- recovery and truncation ----------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8, 11])
def test_recovery_finds_the_end(count: int) -> None:
    """ConsumeQueueExt.recover walks all files."""
    disk = SimulatedDisk()
    end = an_ext(disk, count).files.max_offset
    before = [disk.read(f"{DIRECTORY}/{name}") for name, _ in disk.list_files(DIRECTORY)]
    ext = recovered(disk)
    assert ext.files.max_offset == end
    assert [disk.read(f"{DIRECTORY}/{name}") for name, _ in disk.list_files(DIRECTORY)] == before
    assert ext.put(a_unit()) == an_ext(None, count).put(a_unit())


def test_a_file_that_was_closed_stays_closed() -> None:
    disk = SimulatedDisk()
    an_ext(disk, 5)
    disk.remove(f"{DIRECTORY}/{100:020d}")
    ext = recovered(disk)
    assert ext.files.max_offset == 100
    assert ext.put(a_unit(4)) == ext_address(100)


def test_a_file_without_a_unit_stays_until_it_is_known_that_no_address_leads_there() -> None:
    disk = SimulatedDisk()
    an_ext(disk, 5)
    disk.open(f"{DIRECTORY}/{100:020d}").buffer[:] = bytes(SIZE)
    ext = recovered(disk)
    ext.truncate_by_max_address(ext_address(120))
    assert ext.get(ext_address(60)) == a_unit(3)
    assert ext.put(a_unit(4)) == ext_address(200)
    ext = recovered(disk)
    ext.truncate_by_max_address(ext_address(60))
    assert disk.list_files(DIRECTORY) == [(f"{0:020d}", SIZE)]
    assert ext.put(a_unit(4)) == ext_address(100)


def test_units_behind_the_last_address_are_dropped() -> None:
    """ConsumeQueueExt.truncateByMaxAddress."""
    disk = SimulatedDisk()
    ext = an_ext(disk, 11)
    ext.truncate_by_max_address(1)
    assert ext.files.max_offset == 260
    ext.truncate_by_max_address(ext_address(120))
    assert ext.files.max_offset == 140
    assert len(disk.list_files(DIRECTORY)) == 2
    assert ext.put(a_unit()) == ext_address(140)


def test_files_in_front_of_the_first_address_are_deleted() -> None:
    """ConsumeQueueExt.truncateByMinAddress."""
    disk = SimulatedDisk()
    ext = an_ext(disk, 11)
    ext.truncate_by_min_address(1)
    ext.truncate_by_min_address(ext_address(100))
    assert len(disk.list_files(DIRECTORY)) == 3
    ext.truncate_by_min_address(ext_address(200))
    assert [name for name, _ in disk.list_files(DIRECTORY)] == [f"{100:020d}", f"{200:020d}"]
    assert ext.get(ext_address(40)) is None
    assert ext.get(ext_address(120)) == a_unit(5)
    assert recovered(disk).get(ext_address(120)) == a_unit(5)


@pytest.mark.parametrize("lost", [40, 60, 120])
def test_an_address_whose_unit_was_lost_is_never_given_out_again(lost: int) -> None:
    """5.3.3 puts the next unit there: the old message would have the tags of the new one."""
    disk = SimulatedDisk()
    ext = an_ext(disk, 2)
    for _ in range(3):
        ext = recovered(disk)
        ext.truncate_by_max_address(ext_address(lost))
    assert ext.get(ext_address(20)) == a_unit(1)
    fresh = ext.put(a_unit(9))
    assert fresh is not None
    assert ext_offset(fresh) > lost
    assert ext.get(ext_address(lost)) is None
    again = recovered(disk)
    again.truncate_by_max_address(fresh)
    assert again.get(fresh) == a_unit(9)


def test_a_destroyed_extension_starts_at_nothing() -> None:
    disk = SimulatedDisk()
    ext = an_ext(disk, 7)
    ext.destroy()
    assert disk.list_files(DIRECTORY) == []
    assert ext.put(a_unit()) == ext_address(0)
    ext.close()


def test_a_wrong_file_is_an_error() -> None:
    disk = SimulatedDisk()
    disk.replace(f"{DIRECTORY}/{0:020d}", bytes(99))
    with pytest.raises(CorruptLogError) as caught:
        an_ext(disk).load()
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == f"{DIRECTORY}/{0:020d}"


# -- a queue with an extension --------------------------------------------------------------------


def golden_requests() -> list[DispatchRequest]:
    """The records of the store that was written with extensions, as its log tells them."""
    log = (GOLDEN / "ext" / "commitlog" / f"{0:020d}").read_bytes()
    times = [struct.unpack_from(">q", log, 100 * n + 56)[0] for n in range(6)]
    return [
        DispatchRequest("T", 0, 100 * n, 100, TAG, n, stored_ms, 0)
        for n, stored_ms in enumerate(times)
    ]


@pytest.mark.parametrize("way", ["dispatch", "dispatch_many", "append", "append_many"])
def test_queue_and_extension_are_rocketmqs_byte_for_byte(way: str) -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk)
    requests = golden_requests()
    rows = [(r.offset, r.size, r.tags_code, r.queue_offset, r.store_timestamp_ms) for r in requests]
    if way == "dispatch":
        for request in requests:
            queue.dispatch(request)
    elif way == "dispatch_many":
        queue.dispatch_many(*(np.array(column) for column in zip(*rows, strict=True)))
    else:
        for row in rows:
            if way == "append":
                queue.ensure_room()
                queue.append(*row[:3], row[4])
            else:
                queue.append_many(list(row[:3]), row[4])
    expected = {f.name: f.read_bytes() for f in GOLDEN_EXT.iterdir()}
    assert {n: disk.read(f"{DIRECTORY}/{n}") for n, _ in disk.list_files(DIRECTORY)} == expected
    data = disk.read(f"{QUEUE_DIRECTORY}/{0:020d}")
    assert data == (GOLDEN_QUEUE / f"{0:020d}").read_bytes()
    assert codes_of(queue) == [TAG] * 6


def test_rocketmqs_own_files_are_read_and_stay_as_they_are(tmp_path: Path) -> None:
    copy = shutil.copytree(GOLDEN_EXT, tmp_path / "0")
    ext = ConsumeQueueExt(str(copy), SIZE, RealDisk())
    ext.load()
    ext.recover()
    found = [ext.get(ext_address(at)) for at in (0, 20, 40, 60, 100, 120)]
    assert [unit and unit.tags_code for unit in found] == [TAG] * 6
    assert [unit and unit.store_timestamp_ms for unit in found] == [
        request.store_timestamp_ms for request in golden_requests()
    ]
    ext.close()
    for file in GOLDEN_EXT.iterdir():
        assert (copy / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("count", [0, 1, 9, 25])
def test_recovery_of_queue_and_extension_changes_nothing(count: int) -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk)
    for number in range(count):
        queue.dispatch(a_request(number))
    again = a_queue_again(disk.crashed())
    assert codes_of(again) == [TAG + number for number in range(count)]
    assert [f.wrote_position for files in again.file_queues for f in files.files] == [
        f.wrote_position for files in queue.file_queues for f in files.files
    ]
    again.dispatch(a_request(count))
    assert codes_of(again)[-1] == TAG + count


def test_many_rows_are_extended_as_one_by_one() -> None:
    one, many = a_queue(SimulatedDisk()), a_queue(SimulatedDisk())
    requests = [a_request(number) for number in range(40)]
    for request in requests:
        one.dispatch(request)
    rows = [(r.offset, r.size, r.tags_code, r.queue_offset, r.store_timestamp_ms) for r in requests]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    assert many.dispatch_many(*columns) == 40
    assert many.dispatch_many(*columns) == 0
    for left, right in zip(one.file_queues, many.file_queues, strict=True):
        assert [bytes(f.buffer) for f in left.files] == [bytes(f.buffer) for f in right.files]


@pytest.mark.parametrize("keep", [0, 1, 9, 12])
def test_extensions_of_dropped_units_are_dropped_with_them(keep: int) -> None:
    """5.3.3 does so only if every file of the queue was deleted."""
    disk = SimulatedDisk()
    queue = a_queue(disk)
    for number in range(15):
        queue.dispatch(a_request(number))
    queue.truncate_dirty_logic_files(keep * 100)
    ext_files = queue.file_queues[0]
    assert ext_files.max_offset == keep // 4 * 100 + keep % 4 * 20 - 20 * (keep == 12)
    for number in range(keep, 15):
        assert queue.dispatch(a_request(number, tags_code=-number))
    expected = [TAG + n for n in range(keep)] + [-n for n in range(keep, 15)]
    assert codes_of(queue) == expected
    assert codes_of(a_queue_again(disk)) == expected


def test_an_extension_that_no_unit_points_at_is_deleted() -> None:
    disk = SimulatedDisk()
    an_ext(disk, 7)
    queue = a_queue_again(disk)
    assert disk.list_files(DIRECTORY) == []
    queue.dispatch(a_request(0))
    assert queue.unit(0)[2] == ext_address(0)


def test_units_from_before_the_extension_was_turned_on_stay() -> None:
    disk = SimulatedDisk()
    plain = ConsumeQueue(QUEUE_DIRECTORY, "T", 0, 200, disk)
    for number in range(3):
        plain.dispatch(a_request(number))
    queue = a_queue_again(disk)
    assert not queue.dispatch(a_request(1))
    queue.dispatch(a_request(3))
    assert codes_of(a_queue_again(disk)) == [TAG + number for number in range(4)]
    without = ConsumeQueue(QUEUE_DIRECTORY, "T", 0, 200, disk)
    without.load()
    without.recover()
    assert codes_of(without) == [TAG, TAG + 1, TAG + 2, ext_address(0)]


@pytest.mark.parametrize("lost", ["zeros", "torn", "file", "address"])
def test_what_a_power_loss_took_comes_back_as_plain_tags_code(lost: str) -> None:
    """Without a second look the message would have no tags, or those of another message."""
    disk = SimulatedDisk()
    queue = a_queue(disk)
    for number in range(7):
        queue.dispatch(a_request(number))
    if lost == "file":
        disk.remove(f"{DIRECTORY}/{100:020d}")
    elif lost == "address":
        disk.open(f"{QUEUE_DIRECTORY}/{0:020d}").buffer[5 * 20 + 16 : 6 * 20] = bytes(4)
    else:
        keep = 0 if lost == "zeros" else 6
        disk.open(f"{DIRECTORY}/{100:020d}").buffer[20 + keep : 100] = bytes(80 - keep)
    again = a_queue_again(disk)
    for number in range(7):
        assert not again.dispatch(a_request(number))
    again.dispatch(a_request(7))
    assert codes_of(again) == [TAG + number for number in range(8)]
    assert codes_of(a_queue_again(disk)) == [TAG + number for number in range(8)]


def test_without_a_second_look_lost_tags_let_everybody_pass() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk)
    for number in range(7):
        queue.dispatch(a_request(number))
    disk.open(f"{DIRECTORY}/{100:020d}").buffer[20:] = bytes(80)
    again = a_queue_again(disk)
    for number in range(7, 12):
        again.dispatch(a_request(number))
    codes = codes_of(again)
    assert codes[:5] == [TAG + number for number in range(5)]
    assert all(is_ext_address(code) for code in codes[5:7])
    assert codes[7:] == [TAG + number for number in range(7, 12)]


def test_extensions_go_with_the_messages_they_belong_to() -> None:
    """ConsumeQueue.correctMinOffset, its last step."""
    disk = SimulatedDisk()
    queue = a_queue(disk)
    for number in range(25):
        queue.dispatch(a_request(number))
    assert queue.delete_expired_files(1500) == 1
    queue.correct_min_offset(1500)
    assert queue.min_offset == 15
    names = [name for name, _ in disk.list_files(DIRECTORY)]
    assert names == [f"{start:020d}" for start in (300, 400, 500, 600)]
    found = [code for _, _, code in queue.units(15, 5)]
    assert found == [TAG + number for number in range(15, 20)]


def test_a_destroyed_queue_takes_its_extension_along() -> None:
    disk = SimulatedDisk()
    queue = a_queue(disk)
    for number in range(7):
        queue.dispatch(a_request(number))
    queue.destroy()
    assert disk.list_files(DIRECTORY) == disk.list_files(QUEUE_DIRECTORY) == []
    queue.dispatch(a_request(0))
    assert codes_of(queue) == [TAG]
    queue.close()
