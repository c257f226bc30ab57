import os
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from tandem.drill import ledger as ledger_module
from tandem.drill.errors import LedgerError
from tandem.drill.ledger import NO_ANSWER, Answered, Ledger, Sending, read_entries, write_parquet
from tandem.drill.outcomes import SEND_OK, SLAVE_NOT_AVAILABLE, UNKNOWN


def sending(number: int) -> Sending:
    return Sending(
        send_id=f"sync-1-{number:07d}",
        scenario="slave-loss",
        phase="steady",
        producer="sync-1",
        sequence=number,
        mode="sync",
        topic="drill",
        body_crc32=7,
        body_bytes=100,
        sent_at_ms=1000.0 + number,
    )


def answered(number: int, status: str = SEND_OK, reason: str = "") -> Answered:
    return Answered(
        send_id=f"sync-1-{number:07d}",
        status=status,
        reason=reason,
        queue_id=3,
        queue_offset=number,
        physical_offset=1 << 40,
        answered_at_ms=1002.5 + number,
        latency_ms=2.5,
    )


def test_a_send_and_its_answer_become_one_entry(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.ndjson") as ledger:
        ledger.write(sending(0))
        ledger.write(answered(0, SLAVE_NOT_AVAILABLE, "no slave connected"))

    (entry,) = read_entries(tmp_path / "ledger.ndjson")

    assert entry.send_id == "sync-1-0000000"
    assert entry.status == SLAVE_NOT_AVAILABLE
    assert entry.reason == "no slave connected"
    assert entry.physical_offset == 1 << 40
    assert (entry.sent_at_ms, entry.answered_at_ms) == (1000.0, 1002.5)


def test_a_send_without_an_answer_is_unknown(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.ndjson") as ledger:
        ledger.write(sending(0))
        ledger.write(sending(1))
        ledger.write(answered(1))

    entries = list(read_entries(tmp_path / "ledger.ndjson"))

    assert [(entry.sequence, entry.status) for entry in entries] == [(1, SEND_OK), (0, UNKNOWN)]
    assert entries[1].reason == NO_ANSWER
    assert entries[1].queue_offset == -1


def test_a_line_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.ndjson") as ledger:
        ledger.write(sending(0))

        assert len(list(read_entries(tmp_path / "ledger.ndjson"))) == 1


def test_a_torn_last_line_loses_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ndjson"
    with Ledger(path) as ledger:
        ledger.write(sending(0))
        ledger.write(answered(0))
        ledger.write(sending(1))
    whole = path.read_bytes()

    for cut in range(whole.rindex(b"\n", 0, -1) + 1, len(whole)):
        path.write_bytes(whole[:cut])
        assert [entry.sequence for entry in read_entries(path)] == [0]


def test_a_ledger_is_never_overwritten(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.ndjson"):
        pass

    with pytest.raises(LedgerError, match=r"ledger\.ndjson") as caught:
        Ledger(tmp_path / "ledger.ndjson")
    assert isinstance(caught.value.__cause__, FileExistsError)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_clear_error() -> None:
    full = Ledger.__new__(Ledger)
    full._path = Path("/dev/full")
    full._encoder = msgspec.json.Encoder()
    full._fd = os.open("/dev/full", os.O_WRONLY)

    with full, pytest.raises(LedgerError, match="/dev/full: No space left on device; make room"):
        full.write(sending(0))


def test_parquet_has_every_entry_with_its_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_ROWS_PER_GROUP", 2)
    with Ledger(tmp_path / "ledger.ndjson") as ledger:
        for number in range(5):
            ledger.write(sending(number))
            ledger.write(answered(number))

    rows = write_parquet(tmp_path / "ledger.ndjson", tmp_path / "ledger.parquet")

    table = pq.read_table(tmp_path / "ledger.parquet")
    assert rows == table.num_rows == 5
    assert table.column("sequence").to_pylist() == [0, 1, 2, 3, 4]
    types = {name: str(table.schema.field(name).type) for name in table.schema.names}
    assert types["body_crc32"] == types["queue_id"] == "int32"
    assert types["physical_offset"] == types["sequence"] == "int64"
    assert types["sent_at_ms"] == "double"
    assert len(types) == 19


def test_an_empty_ledger_is_an_empty_table(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.ndjson"):
        pass

    assert write_parquet(tmp_path / "ledger.ndjson", tmp_path / "ledger.parquet") == 0
    assert pq.read_table(tmp_path / "ledger.parquet").num_rows == 0


def test_parquet_on_a_bad_path_is_one_clear_error(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.ndjson"):
        pass

    with pytest.raises(LedgerError) as caught:
        write_parquet(tmp_path / "ledger.ndjson", tmp_path / "missing" / "ledger.parquet")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
