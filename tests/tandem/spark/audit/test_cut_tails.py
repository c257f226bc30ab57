"""Tails that were cut off: their records are read, and an acknowledged one among them is found."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tandem.drill.quick_audit import run_quick_audit
from tandem.spark.audit.cut_tails import cut_records
from tandem.spark.audit.rules import AuditSummary
from tests.support.log_builder import LogBuilder
from tests.support.planted_drill import MASTER, SLAVES, TOPIC, PlantedDrill


def write_tail(store: Path, start: int, data: bytes, name: str = "epoch-3") -> None:
    """What a node leaves when it cuts its log at `start`."""
    folder = store / "truncated"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{start:020d}-{name}").write_bytes(data)
    (folder / f"{start:020d}-{name}.json").write_text("{}")


def audit(ledger: Path, stores: dict[str, Path], confirm: int) -> AuditSummary:
    out = ledger.parent / "out"
    return run_quick_audit(ledger, stores, master=MASTER, topic=TOPIC, out_dir=out, confirm=confirm)


def log_bytes(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))


def test_records_of_a_tail_are_read_to_the_first_that_is_torn(tmp_path: Path) -> None:
    log = LogBuilder(start_offset=0)
    first = log.put(topic=TOPIC, body=b"one", keys="send-1")
    log.put(topic=TOPIC, body=b"two", keys="send-2")
    write_tail(tmp_path, 0, bytes(log.log[:-7]))

    (record,) = cut_records("a", str(tmp_path))

    assert (record.node, record.topic, record.keys) == ("a", TOPIC, "send-1")
    assert record.physical_offset == first.physical_offset
    assert record.data == bytes(log.log[: first.store_size])


def test_a_tail_may_reach_over_the_end_of_a_log_file(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=4096)
    for number in range(60):
        log.put(topic=TOPIC, body=bytes(100), keys=f"send-{number}")
    assert len(log.log) > 2 * 4096
    write_tail(tmp_path, 0, bytes(log.log))

    found = [record.keys for record in cut_records("a", str(tmp_path))]

    assert found == [f"send-{number}" for number in range(60)]


def test_a_store_that_never_cut_anything_has_no_tails(tmp_path: Path) -> None:
    assert list(cut_records("a", str(tmp_path))) == []


def test_an_unacknowledged_tail_is_counted_and_breaks_no_promise(tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    stray = LogBuilder(start_offset=9_000_000)
    stray.put(topic=TOPIC, body=b"never acknowledged", keys="send-00007")
    write_tail(stores[SLAVES[0]], 9_000_000, bytes(stray.log))

    summary = audit(ledger, stores, confirm=len(log_bytes(stores[MASTER])))

    assert (summary.cut_records, summary.acknowledged_cut) == (1, 0)
    assert summary.promises_broken == 0


def test_an_acknowledged_record_that_was_cut_off_is_a_broken_promise(tmp_path: Path) -> None:
    drill = PlantedDrill()
    ledger, stores = drill.write(tmp_path)
    place = drill.send(20).place[2]
    write_tail(stores[SLAVES[1]], place, log_bytes(stores[MASTER])[place : place + 3000])

    summary = audit(ledger, stores, confirm=len(log_bytes(stores[MASTER])))

    assert summary.acknowledged_cut >= 1
    assert summary.promises_broken == summary.acknowledged_cut
    rows = pq.read_table(tmp_path / "out" / "audit").to_pylist()
    cut = [row for row in rows if row["finding"] == "acknowledged_cut"]
    assert {row["node"] for row in cut} == {SLAVES[1]}
    assert "send-00020" in {row["send_id"] for row in cut}


def test_a_fenced_group_is_compared_up_to_what_was_confirmed(tmp_path: Path) -> None:
    drill = PlantedDrill()
    confirm = 60_000

    def change_behind(log: bytearray) -> None:
        log[70_000] ^= 1

    drill.slave_damage[SLAVES[0]] = change_behind
    ledger, stores = drill.write(tmp_path)

    assert audit(ledger, stores, confirm).byte_identical
    assert not audit(ledger, stores, 80_000).byte_identical


@pytest.mark.parametrize("status", ["FLUSH_SLAVE_TIMEOUT", "FLUSH_DISK_TIMEOUT"])
def test_an_answer_that_is_not_ok_promises_nothing_in_a_fenced_group(
    status: str, tmp_path: Path
) -> None:
    drill = PlantedDrill()
    drill.send(40).status = status
    drill.send(40).copies = 0
    ledger, stores = drill.write(tmp_path)

    summary = audit(ledger, stores, confirm=10**9)

    assert (summary.stored_but_missing, summary.unknown_missing) == (0, 1)
    assert summary.promises_broken == 0
