from pathlib import Path

import pytest

from tandem.drill.consumers.lines import read_lines
from tandem.drill.consumers.promises import Promises
from tandem.drill.errors import LedgerError
from tandem.drill.ledger import Ledger
from tests.tandem.drill.consumers.planted_consumers import (
    GROUPS,
    PLANTS,
    PlantedConsumers,
)


def written(planted: PlantedConsumers, path: Path) -> Path:
    with Ledger(path) as ledger:
        for line in planted.lines:
            ledger.write(line)
    return path


def test_what_was_written_is_judged_as_what_was_seen(tmp_path: Path) -> None:
    planted = PlantedConsumers()
    for plant in PLANTS[-3:]:
        plant(planted)
    path = written(planted, tmp_path / "consumers.ndjson")

    assert list(read_lines(path)) == planted.lines
    at_once, later = Promises(GROUPS), Promises(GROUPS)
    for line in planted.lines:
        at_once.take(line)
    for line in read_lines(path):
        later.take(line)
    assert later.summary() == at_once.summary()
    assert later.counts


def test_a_torn_last_line_is_skipped(tmp_path: Path) -> None:
    planted = PlantedConsumers()
    path = written(planted, tmp_path / "consumers.ndjson")
    path.write_bytes(path.read_bytes()[:-5])

    assert list(read_lines(path)) == planted.lines[:-1]


@pytest.mark.parametrize("damage", [b"{}\n", b"\xff\n", b'{"event":"seen"}\n', b"[]\n"])
def test_a_damaged_line_is_an_error(tmp_path: Path, damage: bytes) -> None:
    path = written(PlantedConsumers(), tmp_path / "consumers.ndjson")
    path.write_bytes(damage + path.read_bytes())

    with pytest.raises(LedgerError):
        list(read_lines(path))


def test_a_missing_ledger_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        list(read_lines(tmp_path / "none"))
