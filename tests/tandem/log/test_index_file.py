import struct
from pathlib import Path

import pytest

from tandem.data_file import DataFile
from tandem.log.errors import BadRequestError, RequestFault
from tandem.log.files import open_file
from tandem.log.index_file import (
    DEFAULT_SETTINGS,
    IndexFile,
    IndexSettings,
    find_settings,
    read_header,
)
from tandem.log.store_directory import open_store_directory
from tandem.wire.record_keys import key_hash
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, copy_of, overwrite


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_measured_from_the_files_of_rocketmq(name: str) -> None:
    files = open_store_directory(GOLDEN / name).index_files
    expected = IndexSettings(7, 5) if name == "idx" else IndexSettings(100, 400)
    # Where nothing has a key, there is nothing to measure, and nothing that depends on it.
    counts = [int.from_bytes(Path(f.path).read_bytes()[36:40], "big") for f in files]
    has_keys = max(counts) > 1
    assert find_settings(files) == (expected if has_keys else None)


def test_settings_of_the_user_must_fit_the_length() -> None:
    files = open_store_directory(GOLDEN / "idx").index_files
    assert find_settings(files, IndexSettings(7, 5)) == IndexSettings(7, 5)
    with pytest.raises(BadRequestError) as caught:
        find_settings(files, IndexSettings(8, 5))
    assert caught.value.fault is RequestFault.INDEX_SETTINGS
    assert caught.value.subject == files[0].path


def test_a_file_of_the_default_length_is_tried_with_the_default_settings(tmp_path: Path) -> None:
    path = tmp_path / "20261121001006577"
    hashed = key_hash("T", b"k")
    with path.open("wb") as file:
        file.write(struct.pack(">qqqqii", 1, 2, 0, 0, 1, 2))
        file.seek(40 + hashed % 5_000_000 * 4)
        file.write(struct.pack(">i", 1))
        file.seek(DEFAULT_SETTINGS.units_at + 20)
        file.write(struct.pack(">iqii", hashed, 0, 0, 0))
        file.truncate(DEFAULT_SETTINGS.file_bytes)
    data_file = DataFile(str(path), 0, DEFAULT_SETTINGS.file_bytes)
    assert find_settings([data_file]) == DEFAULT_SETTINGS
    overwrite(path, 36, bytes(4))
    assert find_settings([data_file]) == DEFAULT_SETTINGS  # by its length alone


@pytest.mark.parametrize("at", [32, 36, 40, 68 + 20, 68 + 24, 68 + 36])
def test_a_file_that_was_damaged_gives_no_settings(tmp_path: Path, at: int) -> None:
    root = copy_of("idx", tmp_path)
    first, *others = sorted((root / "index").iterdir())
    for other in others:
        other.unlink()
    overwrite(first, at, b"\x7f\xff\xff\xfd" if at != 36 else b"\x80\0\0\1")
    found = find_settings(open_store_directory(root).index_files)
    assert found in (None, IndexSettings(7, 5))


def test_a_file_longer_than_an_index_can_be_is_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "20261121001006577"
    with path.open("wb") as file:
        file.write(struct.pack(">qqqqii", 1, 2, 0, 0, 1, 2))
        file.truncate(1 << 40)
    assert find_settings([DataFile(str(path), 0, 1 << 40)]) is None


def test_a_key_is_found_by_its_chain() -> None:
    file = open_store_directory(GOLDEN / "basic").index_files[0]
    with open_file(file.path) as descriptor:
        header = read_header(descriptor)
        assert header is not None
        index = IndexFile(descriptor, IndexSettings(100, 400), header)
        assert list(index.offsets(key_hash("TopicA", b"k1"))) == [272, 136, 0]
        assert list(index.offsets(key_hash("TopicA", b"none"))) == []
        assert index.unit_count == 10
        assert index.units(1, 2)["physical_offset"].tolist() == [0, 0]
        assert int((index.slots(0, 100) > 0).sum()) == header.hash_slot_count


def test_a_chain_that_turns_back_ends(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    file = open_store_directory(root).index_files[0]
    unit = 40 + 400 + 8 * 20  # the last entry of k1
    overwrite(Path(file.path), unit + 16, struct.pack(">i", 8))
    with open_file(file.path) as descriptor:
        header = read_header(descriptor)
        assert header is not None
        index = IndexFile(descriptor, IndexSettings(100, 400), header)
        assert list(index.offsets(key_hash("TopicA", b"k1"))) == [272]


def test_a_file_too_short_for_a_header_has_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"short")
    with open_file(str(path)) as descriptor:
        assert read_header(descriptor) is None
