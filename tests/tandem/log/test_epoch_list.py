from pathlib import Path

import pytest

from ha.fenced.epoch_file import EpochFile
from store.machine.real_disk import RealDisk
from tandem.log.epoch_list import Contradicting, contradiction, epochs_of, read_lines
from tandem.wire.store_layout import EPOCH_FILE, EPOCH_IDS_FILE


def a_list(root: Path, *entries: tuple[int, int, str]) -> str:
    epochs = EpochFile(RealDisk(), str(root))
    for epoch, start, epoch_id in entries:
        epochs.append(epoch, start, epoch_id)
    return str(root)


def cause_of(ours: str, theirs: str) -> tuple[Contradicting, int, int]:
    found = contradiction(ours, theirs, 900)
    assert found is not None
    return found[:3]


def test_what_a_node_wrote_is_read(tmp_path: Path) -> None:
    root = a_list(tmp_path, (5, 0, "a1"), (7, 800, ""))
    assert epochs_of(root) == {(5, 0): "a1", (7, 800): ""}
    assert epochs_of(str(tmp_path / "nowhere")) is None


def test_the_second_copy_is_read_where_the_first_is_damaged(tmp_path: Path) -> None:
    root = a_list(tmp_path, (5, 0, "a1"))
    for name in (EPOCH_FILE, EPOCH_IDS_FILE):
        (tmp_path / name).write_bytes(b"1\n77\n5-0\n")
    assert epochs_of(root) == {(5, 0): "a1"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut short"),
        (b"2\n0\n5-0\n", "1 entries where the file says '2'"),
        (b"1\n77\n5-0\n", "do not fit their checksum 77"),
        (b"1\n0\n5_0\n", "not of the form"),
    ],
)
def test_a_damaged_list_is_said_to_be_one(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_lines(data, EPOCH_FILE)


def test_lists_of_one_log_do_not_contradict_each_other(tmp_path: Path) -> None:
    ours = a_list(tmp_path / "a", (5, 0, "a1"), (7, 800, "b2"), (9, 1200, "c3"))
    theirs = a_list(tmp_path / "b", (5, 0, "a1"), (7, 800, ""))
    assert not contradiction(ours, theirs, 1200)
    assert not contradiction(str(tmp_path / "none"), str(tmp_path / "neither"), 1200)
    cut = a_list(tmp_path / "c", (7, 800, "b2"))
    assert not contradiction(ours, cut, 1200)


def test_lists_of_two_logs_do(tmp_path: Path) -> None:
    ours = a_list(tmp_path / "a", (5, 0, "a1"), (7, 800, "b2"))
    shorter = a_list(tmp_path / "b", (5, 0, "a1"))
    assert cause_of(ours, shorter) == (Contradicting.NO_EPOCH, 7, 800)
    other = a_list(tmp_path / "c", (5, 0, "a1"), (7, 800, "dd"))
    assert cause_of(ours, other) == (Contradicting.OTHER_MASTER, 7, 800)
    assert cause_of(ours, str(tmp_path / "n")) == (Contradicting.NO_LIST, -1, -1)
