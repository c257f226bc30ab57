from pathlib import Path

import pytest

from tandem.spark.archive import table_note
from tandem.spark.archive.disk import LocalDisk
from tandem.spark.archive.errors import ArchiveDamagedError, ArchiveTableError, TableFault
from tandem.spark.archive.table_note import (
    TableNote,
    need_iceberg,
    note_place,
    read_note,
    write_note,
)

CATALOGUE = {"type": "rest", "uri": "http://10.0.0.9:8181"}


def test_a_note_is_read_again(tmp_path: Path) -> None:
    assert read_note(tmp_path) is None
    note = write_note(tmp_path, "logs.messages", CATALOGUE, LocalDisk())
    assert read_note(tmp_path) == note == TableNote("logs.messages", CATALOGUE)
    assert write_note(tmp_path, "logs.messages", CATALOGUE, LocalDisk()) == note


@pytest.mark.parametrize(("name", "catalogue"), [("logs.others", CATALOGUE), ("logs.messages", {})])
def test_another_table_is_refused(tmp_path: Path, name: str, catalogue: dict[str, str]) -> None:
    write_note(tmp_path, "logs.messages", CATALOGUE, LocalDisk())
    with pytest.raises(ArchiveTableError) as caught:
        write_note(tmp_path, name, catalogue, LocalDisk())
    assert caught.value.fault is TableFault.OTHER_TABLE


@pytest.mark.parametrize(
    "secret",
    [
        {"token": "t"},
        {"s3.secret-access-key": "k"},
        {"credential": "a:b"},
        {"uri": "postgresql+psycopg2://me:pass@host/db"},
        {"uri": "postgresql://me:pa/ss@host/db"},
        {"uri": "postgresql://host/db?user=me&password=pass"},
        {"adls.account-key": "k"},
        {"adls.connection-string": "k"},
        {"header.Authorization": "Bearer k"},
        {"auth": "k"},
    ],
)
def test_secrets_are_not_kept(tmp_path: Path, secret: dict[str, str]) -> None:
    with pytest.raises(ArchiveTableError) as caught:
        write_note(tmp_path, "logs.messages", secret, LocalDisk())
    assert caught.value.fault is TableFault.SECRET
    assert "PYICEBERG_CATALOG__TANDEM__" in str(caught.value)
    assert all(value not in str(caught.value).split() for value in secret.values())
    assert not note_place(tmp_path).exists()


def test_a_place_that_no_location_can_name(tmp_path: Path) -> None:
    with pytest.raises(ArchiveTableError) as caught:
        write_note(tmp_path / "a#b", "logs.messages", {}, LocalDisk())
    assert caught.value.fault is TableFault.PLACE


@pytest.mark.parametrize("data", [b"", b"{", b'{"name": 5}', b"\xff"])
def test_a_damaged_note_is_said(tmp_path: Path, data: bytes) -> None:
    note_place(tmp_path).parent.mkdir()
    note_place(tmp_path).write_bytes(data)
    with pytest.raises(ArchiveDamagedError):
        read_note(tmp_path)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    need_iceberg()
    monkeypatch.setattr(table_note, "find_spec", lambda _: None)
    with pytest.raises(ArchiveTableError) as caught:
        need_iceberg()
    assert caught.value.fault is TableFault.NOT_INSTALLED
    assert "tandem-mq[iceberg]" in str(caught.value)
