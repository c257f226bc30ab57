"""What a catalogue will name is on the disk first: bytes, name and directories."""

from pathlib import Path

import pytest

from tandem.spark.archive.iceberg import durable_io
from tandem.spark.archive.iceberg.durable_io import DurableFileIO


@pytest.mark.parametrize("scheme", ["file://", ""])
def test_a_file_is_synced_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    done: list[tuple[str, Path, int]] = []
    place = tmp_path / "table" / "metadata" / "v1.json"

    def noted(what: str) -> object:
        return lambda path: done.append((what, path, place.stat().st_size))

    monkeypatch.setattr(durable_io, "sync_file", noted("file"))
    monkeypatch.setattr(durable_io, "sync_directory", noted("directory"))
    with DurableFileIO().new_output(f"{scheme}{place}").create() as stream:
        stream.write(b"twelve bytes")
        assert stream.tell() == 12
        assert done == []
    stream.close()
    assert done == [("file", place, 12), ("directory", place.parent, 12)]
    assert place.read_bytes() == b"twelve bytes"


def test_a_file_that_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    place = tmp_path / "v1.json"
    place.write_bytes(b"old")
    with pytest.raises(FileExistsError):
        DurableFileIO().new_output(f"file://{place}").create()
    with DurableFileIO().new_output(f"file://{place}").create(overwrite=True) as stream:
        stream.write(b"new")
    assert place.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [place]


def test_what_is_elsewhere_is_left_to_pyiceberg() -> None:
    plain = DurableFileIO({"s3.region": "x"}).new_output("s3://bucket/v1.json")
    assert type(plain).__module__ == "pyiceberg.io.pyarrow"
