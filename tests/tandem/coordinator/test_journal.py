from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.coordinator.journal import DiskFile, Journal, JournalError, JournalFile
from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import DeleteOperation, PutOperation, StoreImage
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
        if self.journal.has_waiting:
            self.journal.take(self.store).to_disk()

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
    assert again.image() == image
    assert torn.data == synced
    again.put(b"d")
    assert JournaledStore(torn).image() == again.image()


@given(st.data())
def test_damage_in_the_middle_is_never_taken_for_a_torn_end(data: st.DataObject) -> None:
    file = MemoryFile()
    store = JournaledStore(file)
    store.put(b"a")
    before_last = len(file.data)
    store.put(b"b")
    at = data.draw(st.integers(0, before_last - 1))
    damaged = bytearray(file.data)
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(JournalError, match=r"damaged at byte \d+ of \d+.*bring it back"):
        reopened(bytes(damaged))


def test_another_versions_records_are_refused() -> None:
    file = MemoryFile()
    store = JournaledStore(file)
    store.put(b"a")
    image_only = Journal(first := MemoryFile())
    image_only.restore(KeyValueStore(), 0.0)
    with pytest.raises(JournalError, match="does not fit"):
        reopened(file.data + file.data[len(first.data) :])
    with pytest.raises(JournalError, match="another version"):
        reopened(file.data + first.data)


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


def test_a_journal_on_disk_is_appended_to_cut_and_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "coordinator"
    file = DiskFile(directory)
    assert file.read() == b""
    file.append(b"one")
    file.append(b"two")
    file.cut(4)
    file.append(b"!")
    assert file.read() == b"onet!"
    file.replace(b"new")
    file.append(b"er")
    file.close()
    again = DiskFile(directory)
    assert again.read() == b"newer"
    again.close()
    assert sorted(path.name for path in directory.iterdir()) == ["journal", "lock"]


def test_one_process_has_a_journal(tmp_path: Path) -> None:
    file = DiskFile(tmp_path)
    with pytest.raises(JournalError, match="another process has the coordinator's journal"):
        DiskFile(tmp_path)
    file.close()
    DiskFile(tmp_path).close()


def test_a_crash_before_the_rename_leaves_the_old_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = DiskFile(tmp_path)
    file.append(b"old")
    opened = len(list(Path("/proc/self/fd").iterdir()))

    def crash(_from: Path, _to: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", crash)
    with pytest.raises(OSError, match="No space"):
        file.replace(b"new")
    assert file.read() == b"old"
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
    file.close()


def test_the_file_is_sizes_crcs_and_msgpack_for_other_programs_too() -> None:
    file = MemoryFile()
    JournaledStore(file).put(b"a", b"b")
    data, payloads = file.data, []
    while data:
        size, crc = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
        payload, data = data[8 : 8 + size], data[8 + size :]
        assert crc32_of(payload) == crc
        payloads.append(unpack(payload))
    assert len(payloads) >= 1
    assert b"a" in repr(payloads).encode()
