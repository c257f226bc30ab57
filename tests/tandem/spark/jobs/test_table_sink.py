from pathlib import Path

import pytest

from tandem.spark.archive.disk import LocalDisk
from tandem.spark.archive.manifest import VERSION, ArchiveFacts, create_archive
from tandem.spark.jobs.table_sink import opened_table


def test_there_is_a_table_if_somebody_asked_for_it_once(tmp_path: Path) -> None:
    disk = LocalDisk()
    create_archive(tmp_path, disk, ArchiveFacts(VERSION))
    with opened_table(tmp_path, "", {}, disk) as table:
        assert table is None
    for name in ("logs.messages", ""):
        with opened_table(tmp_path, name, {}, disk) as table:
            assert table is not None
            assert table.state().rows == 0


def test_nothing_is_written_where_the_packages_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tandem.spark.archive import table_note  # noqa: PLC0415
    from tandem.spark.archive.errors import ArchiveTableError, TableFault  # noqa: PLC0415

    monkeypatch.setattr(table_note, "find_spec", lambda _: None)
    with (
        pytest.raises(ArchiveTableError) as caught,
        opened_table(tmp_path, "logs.messages", {}, LocalDisk()),
    ):
        pass
    assert caught.value.fault is TableFault.NOT_INSTALLED
    assert list(tmp_path.iterdir()) == []
