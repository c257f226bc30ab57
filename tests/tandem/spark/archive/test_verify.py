"""Every kind of harm is planted in an archive, and has to be found."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tandem.spark.archive.disk import LocalDisk
from tandem.spark.archive.log_piece import log_files, piece_of
from tandem.spark.archive.manifest import Unit, UnitState, write_unit
from tandem.spark.archive.verify import log_faults, unit_faults
from tests.support.small_archive import SmallArchive

Rows = list[dict[str, Any]]


def against_the_log(small: SmallArchive, unit: Unit) -> list[str]:
    piece = piece_of(unit, str(small.store), log_files(str(small.store)))
    assert piece is not None
    return log_faults(small.archive_path, unit, piece)


def test_a_sound_archive_is_sound(small: SmallArchive) -> None:
    for unit in small.manifest.units:
        assert unit_faults(small.archive_path, unit) == []
        assert against_the_log(small, unit) == []
    assert small.verify().faults == []


def change_body(rows: Rows) -> None:
    rows[3]["body"] = b"other"


def change_property(rows: Rows) -> None:
    rows[3]["properties"] = [("customer", "somebody else")]


def repeat_row(rows: Rows) -> None:
    rows.insert(3, dict(rows[3]))


def lose_row(rows: Rows) -> None:
    del rows[3]


def lose_last_row(rows: Rows) -> None:
    del rows[-1]


def repeat_last_row(rows: Rows) -> None:
    rows.append(dict(rows[-1]))


def swap_rows(rows: Rows) -> None:
    rows[3], rows[4] = rows[4], rows[3]


CHANGES = [
    change_body,
    change_property,
    repeat_row,
    repeat_last_row,
    lose_row,
    lose_last_row,
    swap_rows,
]


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_row_is_found(small: SmallArchive, change: Callable[[Rows], None]) -> None:
    small.change_rows(small.data_file(), change)
    assert unit_faults(small.archive_path, small.unit())
    assert against_the_log(small, small.unit())
    report = small.verify()
    assert report.faults
    # The log file of the unit has to stay, and with it all that come after it.
    assert small.unit().state is UnitState.ARCHIVED
    assert report.deletable == {}


@pytest.mark.parametrize("change", [change_body, repeat_row, lose_row, swap_rows])
def test_rows_are_judged_even_where_the_manifest_agrees_with_the_file(
    small: SmallArchive, change: Callable[[Rows], None]
) -> None:
    """Whoever wrote wrong rows may have written the manifest as well."""
    small.change_rows(small.data_file(), change)
    data = small.data_file().read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    files = list(small.unit().files)
    files[0] = msgspec.structs.replace(files[0], sha256=digest, size_bytes=len(data))
    forged = msgspec.structs.replace(small.unit(), files=tuple(files))
    write_unit(small.archive_path, forged, LocalDisk())
    assert unit_faults(small.archive_path, forged)
    assert against_the_log(small, forged)


def test_a_property_is_judged_against_the_log_alone(small: SmallArchive) -> None:
    small.change_rows(small.data_file(), change_property)
    (fault,) = against_the_log(small, small.unit())
    assert "differs from the log in" in fault
    assert "properties" in fault


def test_a_file_that_is_gone_is_found(small: SmallArchive) -> None:
    small.data_file().unlink()
    assert [
        fault.rpartition(": ")[2] for fault in unit_faults(small.archive_path, small.unit())
    ] == ["is missing"]
    assert small.verify().faults


def test_bytes_that_are_no_parquet_are_found(small: SmallArchive) -> None:
    path = small.data_file()
    path.write_bytes(path.read_bytes()[:-3])
    assert any("Parquet" in fault for fault in unit_faults(small.archive_path, small.unit()))
    path.unlink()
    path.mkdir()
    assert any("read" in fault for fault in unit_faults(small.archive_path, small.unit()))


def test_a_log_that_has_changed_is_told(small: SmallArchive) -> None:
    path = Path(log_files(str(small.store))[0].path)
    data = bytearray(path.read_bytes())
    data[88] ^= 1
    path.write_bytes(data)
    (fault,) = against_the_log(small, small.unit())
    assert "has changed since" in fault
    unit = msgspec.structs.replace(small.unit(1), end=small.unit(1).end - 1)
    piece = piece_of(small.unit(1), str(small.store), log_files(str(small.store)))
    assert piece is not None
    assert "ends at" in log_faults(small.archive_path, unit, piece)[0]


def test_without_its_log_an_archive_is_judged_by_itself(small: SmallArchive) -> None:
    shutil.rmtree(small.store / "commitlog")
    (small.store / "commitlog").mkdir()
    assert small.verify().faults == []
    small.change_rows(small.data_file(), change_body)
    assert small.verify().faults
