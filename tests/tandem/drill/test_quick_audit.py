import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tandem.drill import outcomes
from tandem.drill.quick_audit import run_quick_audit
from tandem.spark.audit import rules as audit_rules
from tandem.spark.audit.log_compare import open_extent
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.errors import NotAStoreError
from tests.support.planted_drill import MASTER, PLANTS, SENDS, SLAVES, TOPIC, PlantedDrill

COUNTS = (
    "sends",
    "records",
    "sync_acknowledged",
    "sync_lost",
    "async_acknowledged",
    "async_lost",
    "unknown_found",
    "unknown_missing",
    "stored_but_missing",
    "duplicated",
    "stored_again",
    "acknowledged_cut",
    "cut_records",
    "phantom",
    "misplaced",
    "out_of_order",
    "corrupt",
    "slaves_not_identical",
)


def audit(drill: PlantedDrill, folder: Path) -> AuditSummary:
    ledger, stores = drill.write(folder)
    return run_quick_audit(ledger, stores, master=MASTER, topic=TOPIC, out_dir=folder / "out")


def counts(summary: AuditSummary) -> dict[str, int]:
    return {name: getattr(summary, name) for name in COUNTS}


def findings(folder: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(folder / "out" / "audit").to_pylist()
    return rows


def test_a_clean_drill_breaks_no_promise(tmp_path: Path) -> None:
    summary = audit(PlantedDrill(), tmp_path)
    clean = dict.fromkeys(COUNTS, 0) | {
        "sends": SENDS,
        "records": SENDS,
        "sync_acknowledged": SENDS // 2,
        "async_acknowledged": SENDS // 2,
    }
    assert counts(summary) == clean
    assert summary.promises_broken == 0
    assert summary.byte_identical
    assert summary.identical_by_slave == dict.fromkeys(SLAVES, True)
    assert [row["finding"] for row in findings(tmp_path)] == ["stored"] * SENDS


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_each_planted_fault_is_found_and_nothing_else(
    plant: Callable[[PlantedDrill], dict[str, int]], tmp_path: Path
) -> None:
    clean = counts(audit(PlantedDrill(), tmp_path / "clean"))
    drill = PlantedDrill()
    expected = plant(drill)
    found = counts(audit(drill, tmp_path / "planted"))
    assert {name: found[name] - clean[name] for name in COUNTS if found[name] != clean[name]} == (
        expected
    )


def test_the_table_has_every_send_once_and_says_what_was_wrong(tmp_path: Path) -> None:
    drill = PlantedDrill()
    for plant in PLANTS:
        plant(drill)
    audit(drill, tmp_path)
    rows = findings(tmp_path)
    beside = (*audit_rules.BROKEN_PROMISES[2:], audit_rules.STORED_AGAIN)
    per_send = [row for row in rows if row["finding"] not in beside]
    assert sorted(str(row["send_id"]) for row in per_send) == [
        send.send_id for send in sorted(drill.sends, key=lambda send: send.number)
    ]
    by_finding = {row["finding"]: row for row in rows}
    assert by_finding["duplicated"]["copies"] == 3
    assert "the answer said queue 0, offset" in str(by_finding["misplaced"]["detail"])
    assert "torn: " in str(by_finding["corrupt"]["detail"])
    assert by_finding["unknown_missing"]["detail"] == "because UNKNOWN"
    assert by_finding["slave_differs"]["node"] in SLAVES


def test_the_first_difference_of_a_slave_is_told(tmp_path: Path) -> None:
    drill = PlantedDrill()
    drill.slave_damage[SLAVES[0]] = lambda log: log.__setitem__(70_000, log[70_000] ^ 1)
    summary = audit(drill, tmp_path)
    assert summary.identical_by_slave == {SLAVES[0]: False, SLAVES[1]: True}
    assert summary.first_difference_by_slave == {SLAVES[0]: 70_000}
    assert summary.shorter_slaves == []


def test_a_slave_that_has_not_caught_up_is_only_shorter(tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    end = open_extent(str(stores[MASTER])).end
    logs = [open_extent(str(stores[name])) for name in SLAVES]
    assert [log.end for log in logs] == [end, end]
    last, *later = [each for each in logs[0].files if each.end_offset > 70_000]
    path = Path(last.path)
    first_bytes = int.from_bytes(path.read_bytes()[:4], "big")
    path.write_bytes(path.read_bytes()[:first_bytes].ljust(last.end_offset - last.offset, b"\0"))
    for each in later:
        Path(each.path).unlink()
    summary = run_quick_audit(ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path)
    short_end = open_extent(str(stores[SLAVES[0]])).end
    assert short_end == last.offset + first_bytes < end
    assert summary.first_difference_by_slave == {SLAVES[0]: short_end}
    assert summary.shorter_slaves == [SLAVES[0]]


def test_a_slave_without_a_log_differs_from_the_first_byte(tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    shutil.rmtree(stores[SLAVES[0]])
    summary = run_quick_audit(ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path)
    assert summary.first_difference_by_slave == {SLAVES[0]: 0}


def test_a_master_without_a_store_is_an_error(tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    shutil.rmtree(stores[MASTER])
    with pytest.raises(NotAStoreError, match=MASTER):
        run_quick_audit(ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path)


def test_a_second_audit_replaces_the_first(tmp_path: Path) -> None:
    audit(PlantedDrill(), tmp_path)
    ledger = tmp_path / "ledger.parquet"
    stores = {node: tmp_path / node for node in (MASTER, *SLAVES)}
    run_quick_audit(ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path / "out")
    assert len(findings(tmp_path)) == SENDS


def test_it_says_what_it_is_doing(tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    stages: list[str] = []
    run_quick_audit(
        ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path, on_stage=stages.append
    )
    assert stages == [
        "comparing 2 logs of 0.2 MiB with that of broker-a-0, byte by byte",
        "reading the log of broker-a-0, 0.1 MiB",
        "joining the ledger of 400 sends with 400 records",
    ]


def test_the_words_of_the_ledger_are_the_words_of_the_rules() -> None:
    of_rules = {
        audit_rules.SEND_OK,
        audit_rules.UNKNOWN,
        *audit_rules.STORED_STATUSES,
        *audit_rules.REFUSED_STATUSES,
    }
    assert of_rules == set(outcomes.STATUSES)
