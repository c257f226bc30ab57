import errno
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.coordinator.journal import (
    DiskFile,
    Journal,
    JournalError,
    JournalFault,
    JournalFile,
    NotWrittenError,
)
from tandem.coordinator.journal_records import twice
from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import (
    IMAGE_FORMAT,
    DeleteOperation,
    PutOperation,
    StoreImage,
)
from tests.support.descriptors import descriptors_to_stay
from tests.support.judges import crc32_of, unpack
from tests.tandem.coordinator.embedded import MemoryFile


class JournaledStore:
    """A store whose changes go through a journal, one write at a time."""

    def __init__(
        self, file: JournalFile, *, now: float = 0.0, replace_bytes_min: int = 10**6
    ) -> None:
        self.journal = Journal(file, replace_bytes_min=replace_bytes_min)
        self.store = KeyValueStore(on_change=self.journal.record)
        self.journal.restore(self.store, now)

    def put(self, *keys: bytes, lease_id: int = 0) -> None:
        """One write with a change per key."""
        for key in keys:
            self.store.transact([], [PutOperation(key, b"v", lease_id)], [], 0.0)
        self.sync()

    def sync(self) -> None:
        while self.journal.has_waiting:
            write = self.journal.take(self.store)
            try:
                write.to_disk()
            except NotWrittenError:
                self.journal.take_back(write)
                raise
            self.journal.settle(write)

    def image(self) -> StoreImage:
        image = self.store.image()
        return StoreImage(
            image.revision, tuple(sorted(image.items, key=lambda i: i.key)), image.leases
        )


def reopened(data: bytes) -> JournaledStore:
    return JournaledStore(MemoryFile(data))


def test_everything_comes_back_and_leases_run_in_full() -> None:
    file = MemoryFile()
    before = JournaledStore(file)
    before.store.grant(7, 5, 0.0)
    before.put(b"a", lease_id=7)
    before.put(b"b", b"c")
    before.store.transact([], [DeleteOperation(b"b")], [], 4.0)
    before.sync()
    after = JournaledStore(file, now=100.0)
    assert after.image() == before.image()
    assert after.store.next_expiry == 105.0
    after.put(b"d")
    assert JournaledStore(file).image() == after.image()


@pytest.mark.parametrize("replace_bytes_min", [10**6, 1], ids=["changes", "image"])
def test_what_a_write_that_was_taken_back_had_comes_first(replace_bytes_min: int) -> None:
    file = MemoryFile()
    before = JournaledStore(file, replace_bytes_min=replace_bytes_min)
    before.store.transact([], [PutOperation(b"a", b"v", 0), PutOperation(b"b", b"v", 0)], [], 0.0)
    refused = before.journal.take(before.store)
    assert bool(refused.room_bytes) is (replace_bytes_min == 1)
    before.store.transact([], [DeleteOperation(b"a")], [], 0.0)
    before.journal.take_back(refused)
    before.sync()
    assert JournaledStore(file).image() == before.image()


def test_the_history_reaches_back_to_the_last_image() -> None:
    file = MemoryFile()
    JournaledStore(file).put(b"a", b"b")
    store = JournaledStore(file).store
    assert [event.key for event in store.events(2, b"\0", b"\0", 9)] == [b"a", b"b"]


@given(st.data())
def test_a_torn_end_takes_back_only_what_nobody_was_told(data: st.DataObject) -> None:
    file = MemoryFile()
    store = JournaledStore(file)
    store.put(b"a")
    synced, image = file.data, store.image()
    store.put(b"b", b"c")
    kept = data.draw(st.integers(len(synced), len(file.data) - 1))
    rest = data.draw(st.sampled_from([b"", bytes(len(file.data) - kept), b"\xff" * 20]))
    torn = MemoryFile(file.data[:kept] + rest)
    again = JournaledStore(torn)
    if kept < (len(synced) + len(file.data)) // 2:
        assert again.image() == image
        assert torn.data == synced
    else:
        # The record was written, and its copy was not.
        assert again.image() == store.image()
        assert torn.data == file.data
    again.put(b"d")
    assert JournaledStore(torn).image() == again.image()


def written() -> tuple[bytes, StoreImage]:
    file = MemoryFile()
    store = JournaledStore(file)
    for key in (b"a", b"a", b"b"):
        store.put(key)
    return file.data, store.image()


def test_a_changed_byte_takes_nothing_back_wherever_it_is() -> None:
    data, image = written()
    for at in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= flip
            file = MemoryFile(bytes(damaged))
            assert JournaledStore(file).image() == image, (at, flip)
            assert file.data == data


@given(st.data())
def test_a_record_that_is_damaged_with_its_copy_is_refused_unless_it_is_the_last(
    data: st.DataObject,
) -> None:
    content, image = written()
    pairs = pairs_of(content)
    start, size = data.draw(st.sampled_from(pairs[:-1]))
    damaged = bytearray(content)
    for at in (start, start + size // 2):
        damaged[at + data.draw(st.integers(0, size // 2 - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(JournalError, match="bring it back from a copy") as caught:
        reopened(bytes(damaged))
    assert (caught.value.fault, caught.value.position) == (JournalFault.DAMAGED, start)
    assert reopened(content).image() == image


def pairs_of(content: bytes) -> list[tuple[int, int]]:
    """Where each record begins, and how long it is with its copy."""
    pairs, at = [], 0
    while at < len(content):
        size = 2 * (8 + int.from_bytes(content[at : at + 4], "big"))
        pairs.append((at, size))
        at += size
    return pairs


def without_copies(content: bytes) -> bytes:
    return b"".join(content[at : at + size // 2] for at, size in pairs_of(content))


def test_a_journal_of_an_earlier_version_is_read_and_gets_copies() -> None:
    content, image = written()
    file = MemoryFile(without_copies(content))
    assert JournaledStore(file).image() == image
    assert file.data == content


@given(st.data())
def test_damage_in_the_middle_of_one_without_copies_is_not_a_torn_end(data: st.DataObject) -> None:
    content = without_copies(written()[0])
    last = pairs_of(written()[0])[-1][1] // 2
    damaged = bytearray(content)
    damaged[data.draw(st.integers(0, len(content) - last - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(JournalError) as caught:
        reopened(bytes(damaged))
    assert caught.value.fault is JournalFault.DAMAGED


def test_a_journal_of_a_later_format_is_refused_and_one_without_a_number_is_not() -> None:
    store = JournaledStore(MemoryFile())
    store.put(b"a")
    image = msgspec.to_builtins(store.store.image(), builtin_types=(bytes,))
    assert image["format"] == IMAGE_FORMAT
    later = twice(msgspec.msgpack.encode(image | {"format": IMAGE_FORMAT + 1}))
    with pytest.raises(JournalError) as caught:
        reopened(later)
    assert caught.value.fault is JournalFault.VERSION
    del image["format"]
    assert reopened(twice(msgspec.msgpack.encode(image))).image() == store.image()


def test_another_versions_records_are_refused() -> None:
    file = MemoryFile()
    store = JournaledStore(file)
    store.put(b"a")
    image_only = Journal(first := MemoryFile())
    image_only.restore(KeyValueStore(), 0.0)
    for more, fault in (
        (file.data[len(first.data) :], JournalFault.GAP),
        (first.data, JournalFault.VERSION),
    ):
        with pytest.raises(JournalError) as caught:
            reopened(file.data + more)
        assert caught.value.fault is fault


def test_a_journal_that_has_grown_is_replaced_and_stays_small() -> None:
    file = MemoryFile()
    store = JournaledStore(file, replace_bytes_min=2000)
    for _ in range(500):
        store.put(b"a", b"b")
        assert len(file.data) < 3000
    assert file.replaced_count > 10
    assert JournaledStore(file).image() == store.image()


def test_what_is_recorded_while_an_image_is_made_is_in_it() -> None:
    file = MemoryFile()
    store = JournaledStore(file, replace_bytes_min=1)
    store.put(b"a", b"b")
    assert file.replaced_count == 2
    assert [item.key for item in reopened(file.data).image().items] == [b"a", b"b"]


ZEROS = st.sampled_from([0, 1, 7, 8, 9, 5000])


@given(ZEROS, ZEROS)
def test_zeros_after_the_last_record_are_room(before: int, after: int) -> None:
    file = MemoryFile()
    store = JournaledStore(file)
    store.put(b"a")
    file.data += bytes(before)
    again = JournaledStore(file)
    again.put(b"b")
    assert reopened(file.data + bytes(after)).image() == again.image()


@pytest.mark.parametrize("size", [1, 8, 5000])
def test_a_journal_of_zeros_is_no_new_one(size: int) -> None:
    with pytest.raises(JournalError) as caught:
        reopened(bytes(size))
    assert (caught.value.fault, caught.value.position) == (JournalFault.DAMAGED, 0)


@given(st.data())
def test_what_the_disk_did_not_take_is_written_again_and_never_half_read(
    data: st.DataObject,
) -> None:
    """At any time a crash leaves what was answered, or more of what was done."""
    file = MemoryFile()
    live = JournaledStore(file, replace_bytes_min=300)
    answered = live.image()
    for number in range(data.draw(st.integers(1, 12))):
        file.failing = data.draw(st.sampled_from(["", "", "write", "change", "replacement"]))
        file.torn_bytes = data.draw(st.integers(0, 60))
        try:
            live.put(b"%d" % (number % 3))
        except NotWrittenError:
            assert live.journal.has_waiting
        else:
            answered = live.image()
        assert reopened(file.data).image() in (answered, live.image())
    file.failing = ""
    live.sync()
    assert reopened(file.data).image() == live.image()


def test_what_does_not_fit_into_the_file_is_tried_in_a_new_one_and_the_other_way_round() -> None:
    file = MemoryFile()
    live = JournaledStore(file, replace_bytes_min=10_000)
    live.put(b"a")
    file.failing, file.torn_bytes = "change", 20
    with pytest.raises(NotWrittenError):
        live.put(b"b")
    live.put(b"c")
    with pytest.raises(NotWrittenError):
        live.put(b"d")
    file.failing = "replacement"
    with pytest.raises(NotWrittenError):
        live.put(b"e")
    live.put(b"f")
    assert reopened(file.data).image() == live.image()
    file.failing = ""
    replaced_count = file.replaced_count
    for number in range(400):
        live.put(b"%d" % number)
    assert file.replaced_count > replaced_count, "it grows for ever"
    assert reopened(file.data).image() == live.image()


def contents(directory: Path) -> bytes:
    return (directory / "journal").read_bytes().rstrip(b"\0")


def test_a_journal_on_disk_is_written_and_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "coordinator"
    file = DiskFile(directory)
    assert file.read() == b""
    file.replace(b"one", 10_000)
    file.write(3, b"two")
    assert file.read() == b"onetwo" + bytes(10_000 - 6)
    file.replace(b"new", 20_000)
    file.write(3, b"er")
    file.close()
    again = DiskFile(directory)
    assert again.read() == b"newer" + bytes(20_000 - 5)
    for room_bytes in (100, 30_000, 5):
        again.replace(b"again", room_bytes)
        assert again.read() == b"again" + bytes(room_bytes - 5)
    again.close()
    assert sorted(path.name for path in directory.iterdir()) == ["journal", "journal.new", "lock"]


def test_the_next_journal_has_its_blocks_before_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are those of the old one given back to the disk, where others might take them."""
    file = DiskFile(tmp_path)
    file.replace(b"first", 1 << 20)

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    for number in range(4):
        file.replace(b"%d" % number, 1 << 20)
        for name in ("journal", "journal.new"):
            assert (tmp_path / name).stat().st_blocks * 512 >= 1 << 20
    file.close()


def test_one_process_has_a_journal(tmp_path: Path) -> None:
    file = DiskFile(tmp_path)
    with pytest.raises(JournalError) as caught:
        DiskFile(tmp_path)
    assert caught.value.fault is JournalFault.IN_USE
    file.close()
    DiskFile(tmp_path).close()


def test_one_that_cannot_be_opened_lets_go_of_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    opened = descriptors_to_stay()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            DiskFile(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


@pytest.mark.parametrize(
    ("call", "number", "error"),
    [
        ("pwrite", 28, NotWrittenError),
        ("pwrite", 5, NotWrittenError),
        ("fsync", 5, OSError),
        ("rename", 28, NotWrittenError),
        ("rename", 5, OSError),
    ],
)
def test_a_new_journal_that_fails_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, error: type[Exception]
) -> None:
    file = DiskFile(tmp_path)
    file.replace(b"old", 100)
    opened = descriptors_to_stay()

    def fail(*_arguments: object) -> None:
        raise OSError(number, "It fails")

    with monkeypatch.context() as patch:
        patch.setattr(Path if call == "rename" else os, call, fail)
        with pytest.raises(error) as caught:
            file.replace(b"new", 100)
    failed = caught.value.error if isinstance(caught.value, NotWrittenError) else caught.value
    assert isinstance(failed, OSError)
    assert failed.errno == number
    assert contents(tmp_path) == b"old"
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
    file.close()
    again = DiskFile(tmp_path)
    assert again.read().rstrip(b"\0") == b"old"
    again.replace(b"new", 100)
    assert contents(tmp_path) == b"new"
    again.close()


def test_a_write_may_be_tried_again_but_not_after_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = DiskFile(tmp_path)
    file.replace(b"old", 100)
    real = os.pwrite
    for number in (28, 5):

        def fail(fd: int, data: bytes, position: int, number: int = number) -> int:
            if position > 3:
                raise OSError(number, "It fails")
            return real(fd, bytes(data[:2]), position)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", fail)
            with pytest.raises(NotWrittenError, match="by itself when the disk takes") as caught:
                file.write(3, b"torn")
        assert caught.value.error.errno == number
        assert contents(tmp_path) == b"oldto"
    file.write(3, b"whole")

    def fail_sync(_fd: int) -> None:
        raise OSError(5, "It fails")

    monkeypatch.setattr(os, "fdatasync", fail_sync)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        file.write(8, b"!")
    file.close()


def test_without_room_for_the_next_journal_there_is_still_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    file = DiskFile(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        file.replace(b"one", 10_000)
        file.write(3, b"two")
    file.write(6, b"three")
    assert (tmp_path / "journal.new").stat().st_blocks * 512 >= 10_000
    assert contents(tmp_path) == b"onetwothree"
    file.close()


def test_the_file_is_sizes_crcs_and_msgpack_for_other_programs_too() -> None:
    file = MemoryFile()
    JournaledStore(file).put(b"a", b"b")
    data, payloads = file.data, []
    while any(data):
        size, crc = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
        payload, data = data[8 : 8 + size], data[8 + size :]
        assert data[:4] == (size | 1 << 31).to_bytes(4, "big")
        assert data[4 : 8 + size] == (crc ^ 0xFFFFFFFF).to_bytes(4, "big") + payload
        data = data[8 + size :]
        assert crc32_of(payload) == crc
        payloads.append(unpack(payload))
    assert len(payloads) >= 1
    assert b"a" in repr(payloads).encode()
