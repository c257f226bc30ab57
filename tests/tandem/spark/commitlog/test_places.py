from pathlib import Path

import pytest

from tandem.spark.commitlog.places import expand, find_places, list_files, place_of
from tandem.spark.errors import NotAStoreError, StoreFault
from tests.support.log_builder import LogBuilder


def a_log() -> LogBuilder:
    log = LogBuilder(file_bytes=4096)
    for _ in range(100):
        log.put(body=bytes(100))
    return log


def spread(root: Path, count: int) -> list[Path]:
    """A store whose log is in directories of its own, as MultiPathMappedFileQueue leaves it."""
    a_log().write(root / "store")
    directories = [root / f"disk{number}" for number in range(count)]
    for directory in directories:
        directory.mkdir()
    for number, file in enumerate(sorted((root / "store" / "commitlog").iterdir())):
        file.rename(directories[number % count] / file.name)
    (root / "store" / "commitlog").rmdir()
    return directories


def test_files_of_several_directories_are_one_row(tmp_path: Path) -> None:
    directories = spread(tmp_path, 3)
    names = [str(directory) for directory in directories]
    (place,) = find_places([str(tmp_path / "store")], names)
    files = list_files(place)
    assert [file.offset for file in files] == list(range(0, 4096 * len(files), 4096))
    assert place.beside("consumequeue") == str(tmp_path / "store" / "consumequeue")
    (bare,) = find_places([], names)
    assert list_files(bare) == files
    assert (bare.name, bare.root) == (names[0], "")


def test_a_root_without_its_log_names_the_option(tmp_path: Path) -> None:
    spread(tmp_path, 2)
    with pytest.raises(NotAStoreError, match="commitLogDirectories") as caught:
        place_of(str(tmp_path / "store"))
    assert caught.value.fault is StoreFault.LOG_ELSEWHERE


def test_directories_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    disks = [str(directory) for directory in spread(tmp_path, 2)]
    store = str(tmp_path / "store")
    with pytest.raises(NotAStoreError) as caught:
        find_places([store, store], disks)
    assert caught.value.fault is StoreFault.SEVERAL_STORES
    with pytest.raises(NotAStoreError) as caught:
        find_places([store], [disks[0], disks[0] + "/"])
    assert caught.value.fault is StoreFault.NAMED_TWICE
    with pytest.raises(NotAStoreError, match="nowhere") as caught:
        find_places([store], [disks[0], str(tmp_path / "nowhere")])
    assert caught.value.fault is StoreFault.NO_DIRECTORY
    with pytest.raises(NotAStoreError) as caught:
        find_places([store], ["s3://bucket/log"])
    assert caught.value.fault is StoreFault.SEVERAL_SYSTEMS


def test_two_files_of_one_offset_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        a_log().write(tmp_path / name)
    (place,) = find_places([], [str(tmp_path / "a/commitlog"), str(tmp_path / "b/commitlog")])
    with pytest.raises(NotAStoreError) as caught:
        list_files(place)
    assert caught.value.fault is StoreFault.SAME_FILE


def test_patterns_fit_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("broker-a-0", "broker-a-1", "broker-b-0", ".hidden"):
        (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "data" / "broker-file").touch()
    monkeypatch.chdir(tmp_path)
    data = ["data/broker-a-0", "data/broker-a-1", "data/broker-b-0"]
    assert expand("data/broker-*") == data
    assert expand("data/*") == data
    assert expand("*/broker-?-0") == [data[0], data[2]]
    assert expand("data/broker-{b-0,a-[1]}") == [data[2], data[1]]
    assert expand("data/nothing") == ["data/nothing"]
    assert expand(f"file:{tmp_path}/data/*-0") == [f"{tmp_path}/data/broker-{n}-0" for n in "ab"]
    with pytest.raises(NotAStoreError) as caught:
        expand("data/none-*")
    assert caught.value.fault is StoreFault.NO_MATCH


def test_a_directory_that_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    odd = tmp_path / "data[1]"
    a_log().write(odd)
    (place,) = find_places([str(odd)])
    assert place.name == str(odd)


def test_files_of_other_names_are_no_files_of_a_log(tmp_path: Path) -> None:
    folder = a_log().write(tmp_path) / "commitlog"
    (folder / ("9" * 20)).mkdir()
    (folder / ("8" * 20)).write_bytes(b"x")
    (folder / "00000000000000000000.tmp").write_bytes(b"x")
    (folder / f"{4096 * 99:020d}").touch()
    files = list_files(place_of(str(tmp_path)))
    assert [Path(file.path).name for file in files] == sorted(a_log().files())
