import logging
from pathlib import Path

import pytest

from tandem.spark.commitlog import data_loss
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.split import LostRange
from tandem.spark.errors import DataLossError, LossCause
from tests.support.log_builder import LogBuilder

FILE_BYTES = 8192
NAMES = ("physicalOffset", "error")


def a_store(root: Path) -> Path:
    log = LogBuilder(file_bytes=FILE_BYTES)
    for _ in range(100):
        log.put(body=bytes(200))
    return log.write(root)


def test_a_file_deleted_after_planning_is_said_with_its_range(tmp_path: Path) -> None:
    options = ScanOptions(paths=(str(a_store(tmp_path)),))
    split = plan_splits(options)[1]
    Path(split.file.path).unlink()
    with pytest.raises(DataLossError) as caught:
        list(data_loss.read_scan(split, options, NAMES))
    words = f"store {tmp_path}: physical offsets 8192 to 16384 are gone, their files were deleted"
    assert str(caught.value).startswith(words)
    assert "failOnDataLoss=false" in str(caught.value)
    assert (caught.value.cause, caught.value.start) == (LossCause.DELETED, 8192)


def test_a_loss_can_be_a_warning_and_a_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ScanOptions(paths=(str(a_store(tmp_path)),), fail_on_data_loss=False, on_error="row")
    split = plan_splits(options)[1]
    Path(split.file.path).unlink()
    with caplog.at_level(logging.WARNING):
        (batch,) = data_loss.read_scan(split, options, NAMES)
    (row,) = batch.to_pylist()
    assert row["physicalOffset"] == FILE_BYTES
    assert row["error"].startswith("lost: store")
    assert row["error"].endswith("their files were deleted")
    assert "8192 to 16384 are gone" in caplog.text
    silent = ScanOptions(paths=options.paths, fail_on_data_loss=False)
    assert list(data_loss.read_scan(split, silent, NAMES)) == []


@pytest.mark.parametrize(
    "loss",
    [
        data_loss.deleted("s", 1, 2),
        data_loss.cut("s", 2, 1),
        data_loss.beyond("s", 2, 1),
        data_loss.rewritten("s", 2),
    ],
)
def test_every_loss_names_store_and_remedy(loss: LostRange) -> None:
    assert loss.reason.startswith("store s: ")
    assert loss.remedy.endswith("or go on without it with option failOnDataLoss=false")


def test_files_deleted_while_we_look_are_looked_at_anew() -> None:
    failures = [2]

    def look() -> int:
        failures[0] -= 1
        if failures[0] >= 0:
            raise FileNotFoundError(2, "No such file", "000")
        return 5

    assert data_loss.looking_again(look) == 5
    failures[0] = 3
    with pytest.raises(DataLossError, match="000 was deleted") as caught:
        data_loss.looking_again(look)
    assert caught.value.cause is LossCause.DELETED
