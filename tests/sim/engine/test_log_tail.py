"""The end of a log is found from its bytes alone."""

from node.simulated.disk import SimulatedDisk
from tests.sim.engine.log_tail import LogTail
from tests.support.log_builder import LogBuilder

FILE_BYTES = 4096


def _disk_with(builder: LogBuilder) -> SimulatedDisk:
    disk = SimulatedDisk()
    padded = bytes(builder.log).ljust(-(-len(builder.log) // FILE_BYTES) * FILE_BYTES, b"\0")
    for start in range(0, len(padded), FILE_BYTES):
        file = disk.create(f"/node/commitlog/{start:020d}", FILE_BYTES)
        file.buffer[:] = padded[start : start + FILE_BYTES]
    return disk


def _builder(count: int) -> LogBuilder:
    builder = LogBuilder(file_bytes=FILE_BYTES)
    for index in range(count):
        builder.put(body=b"x" * index)
    return builder


def test_the_end_lies_behind_the_last_record_over_several_files() -> None:
    builder = _builder(60)
    tail = LogTail(_disk_with(builder), "/node")
    assert len(builder.log) > FILE_BYTES
    assert tail.end() == builder.end_offset
    assert tail.read(0, tail.end()) == bytes(builder.log)
    assert tail.read(4000, 4200) == bytes(builder.log[4000:4200])


def test_an_empty_log_ends_at_zero() -> None:
    assert LogTail(SimulatedDisk(), "/node").end() == 0


def test_it_follows_a_log_that_grows() -> None:
    builder = _builder(3)
    disk = _disk_with(builder)
    tail = LogTail(disk, "/node")
    first = tail.end()
    builder.put(body=b"one more")
    disk.open(f"/node/commitlog/{0:020d}").buffer[: len(builder.log)] = bytes(builder.log)
    assert tail.end() == builder.end_offset > first


def test_what_is_no_record_ends_the_log() -> None:
    builder = _builder(3)
    end = builder.end_offset
    for junk in (b"\x00\x00\x00\x00\xda\xa3 \xa7", b"\xff" * 8, bytes(builder.log[:60])):
        disk = _disk_with(builder)
        disk.open(f"/node/commitlog/{0:020d}").buffer[end : end + len(junk)] = junk
        assert LogTail(disk, "/node").end() == end


def test_it_begins_again_when_the_log_was_cut() -> None:
    builder = _builder(60)
    disk = _disk_with(builder)
    tail = LogTail(disk, "/node")
    assert tail.end() == builder.end_offset
    first_end = int.from_bytes(builder.log[:4], "big")
    disk.remove(f"/node/commitlog/{FILE_BYTES:020d}")
    disk.open(f"/node/commitlog/{0:020d}").buffer[first_end:] = bytes(FILE_BYTES - first_end)
    assert tail.end() == first_end


def test_what_is_durable_may_end_sooner() -> None:
    builder = _builder(3)
    disk = _disk_with(builder)
    durable = LogTail(disk, "/node", is_durable=True)
    assert durable.end() == 0
    disk.open(f"/node/commitlog/{0:020d}").sync()
    assert durable.end() == builder.end_offset
