from pathlib import Path

import pytest

from store.files.store_checkpoint import StoreCheckpoint
from store.machine.real_disk import RealDisk
from tandem.spark.commitlog.confirmed import confirmed_end
from tandem.spark.commitlog.places import place_of
from tandem.spark.errors import NotAStoreError, StoreFault
from tandem.wire.store_layout import EPOCH_FILE, EPOCH_IDS_FILE, REPLICA_FILE
from tests.support.fenced_store import note_confirmed, write_checkpoint
from tests.support.log_builder import LogBuilder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = LogBuilder()
    log.put()
    return log.write(tmp_path / "broker-a-1")


def confirmed(path: Path) -> int | None:
    return confirmed_end(place_of(str(path)))


def test_what_a_node_has_written_is_read(root: Path) -> None:
    """By the class that writes it, so that neither can move it alone."""
    (root / REPLICA_FILE).touch()
    checkpoint = StoreCheckpoint(str(root / "checkpoint"), RealDisk())
    checkpoint.confirm_physical_offset = 9000
    checkpoint.replicated_offset = 7000
    checkpoint.flush_blocking()
    assert confirmed(root) == 7000
    assert confirmed(root / "commitlog") == 7000
    checkpoint.close()


def test_nothing_bounds_a_log_of_another_kind(root: Path) -> None:
    assert confirmed(root) is None
    write_checkpoint(root, 0)
    (root / EPOCH_FILE).touch()  # RocketMQ's, with its controller
    assert confirmed(root) is None
    (root / "commitlog").rename(root / "log")
    assert confirmed(root / "log") is None


def test_a_fenced_node_that_has_confirmed_nothing_has_nothing_to_read(root: Path) -> None:
    note_confirmed(root, 0)
    assert confirmed(root) == 0


@pytest.mark.parametrize("name", [REPLICA_FILE, EPOCH_IDS_FILE])
def test_each_file_of_a_fenced_node_tells_it(root: Path, name: str) -> None:
    write_checkpoint(root, 0)
    (root / name).touch()
    assert confirmed(root) == 0


def test_a_number_alone_tells_it_too(root: Path) -> None:
    """A copy of a store, without the files that say whose it is."""
    write_checkpoint(root, 50)
    assert confirmed(root) == 50


def test_without_a_checkpoint_nobody_knows(root: Path) -> None:
    (root / REPLICA_FILE).touch()
    with pytest.raises(NotAStoreError) as caught:
        confirmed(root)
    assert caught.value.fault is StoreFault.NO_CHECKPOINT
    assert "includeUnconfirmed" in str(caught.value)


@pytest.mark.parametrize("at", [1024, 1031])
def test_a_number_whose_bytes_have_changed_is_taken_from_its_copy(root: Path, at: int) -> None:
    note_confirmed(root, 70)
    data = bytearray((root / "checkpoint").read_bytes())
    data[at] ^= 0x40
    (root / "checkpoint").write_bytes(data)
    assert confirmed(root) == 70
