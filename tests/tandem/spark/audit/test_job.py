"""Both audits, with Spark and without, against made-up drills: the tables of plain Python.

Most of it runs on `plain_spark`, which has no Java and takes milliseconds, so that every kind of
fault can be cut in every way. One test uses Spark itself, with all faults at once and everything
cut small; the pages' tests have one more, uncut. What is found of each fault, by number:
tests/tandem/drill/test_quick_audit.py.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tandem.drill.quick_audit import run_quick_audit
from tandem.spark.audit import tasks
from tandem.spark.audit.audit_work import DEFAULT_SIZES, AuditSizes
from tandem.spark.audit.job import run_audit
from tandem.spark.audit.record_rows import scan_options
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.errors import AuditTableError, NotAStoreError
from tests.support.fenced_store import note_confirmed
from tests.support.plain_audit import plain_audit
from tests.support.plain_spark import PlainRdd, plain_spark
from tests.support.planted_drill import MASTER, PLANTS, QUEUES, SENDS, SLAVES, TOPIC, PlantedDrill

SMALL = AuditSizes(
    task_bytes_min=1,
    task_bytes_max=8192,
    bucket_sends=150,
    bucket_log_bytes=1 << 30,
    span=11,
    split_bytes=4096,
)
"""Two dozen pieces of the log, three buckets, stretches of eleven offsets."""

SMALLER = msgspec.structs.replace(SMALL, task_bytes_max=1, bucket_sends=30, span=3)


def rows_of(table: Path) -> list[tuple[str, ...]]:
    rows = pq.read_table(table).to_pylist()
    return sorted(tuple(str(value) for value in row.values()) for row in rows)


def both_audits(
    drill: PlantedDrill,
    folder: Path,
    *all_sizes: AuditSizes,
    spark: Any = None,  # noqa: ANN401 - a session, or what stands in for one
    confirm: int | None = None,
) -> AuditSummary:
    """Audit with Spark in each of these sizes and without; the answers have to be the right one."""
    ledger, stores = drill.write(folder)
    found, expected = plain_audit(ledger, stores, master=MASTER, topic=TOPIC, confirm=confirm)
    rows = sorted(tuple(map(str, msgspec.structs.astuple(row))) for row in found)
    quick = run_quick_audit(
        ledger, stores, master=MASTER, topic=TOPIC, out_dir=folder / "quick", confirm=confirm
    )
    assert rows_of(folder / "quick" / "audit") == rows
    assert quick == expected
    for sizes in all_sizes:
        summary = run_audit(
            spark or plain_spark(),
            ledger,
            stores,
            master=MASTER,
            topic=TOPIC,
            out_dir=folder / "spark",
            confirm=confirm,
            sizes=sizes,
        )
        assert rows_of(folder / "spark" / "audit") == rows
        assert summary == expected
    return expected


def all_plants() -> PlantedDrill:
    drill = PlantedDrill()
    for plant in PLANTS:
        plant(drill)
    return drill


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.thorough
def test_in_spark_every_planted_fault_is_found_however_small_it_is_cut(
    spark: "SparkSession", tmp_path: Path
) -> None:
    sizes = msgspec.structs.replace(SMALL, task_bytes_max=40_000, bucket_sends=200)
    assert both_audits(all_plants(), tmp_path, sizes, spark=spark).promises_broken > 10


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_each_planted_fault_is_found_however_small_it_is_cut(
    plant: Callable[[PlantedDrill], dict[str, int]], tmp_path: Path
) -> None:
    drill = PlantedDrill()
    plant(drill)
    both_audits(drill, tmp_path, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("confirm", [None, 50_000])
def test_all_faults_together_are_found_in_any_size(confirm: int | None, tmp_path: Path) -> None:
    summary = both_audits(all_plants(), tmp_path, DEFAULT_SIZES, SMALL, SMALLER, confirm=confirm)
    assert summary.promises_broken > 10


def numbers_at_borders(folder: Path) -> tuple[list[int], list[int]]:
    """The numbers of the first and of the last sends of the pieces that SMALLER cuts a log into."""
    drill = PlantedDrill()
    _, stores = drill.write(folder)
    starts = {
        split.file.offset + split.start
        for split in plan_splits(scan_options(str(stores[MASTER]), SMALLER.split_bytes))
    }
    pairs = [
        (before.number, after.number)
        for before, after in pairwise(drill.sends)
        if after.place[2] in starts
    ]
    return [after for _, after in pairs], [before for before, _ in pairs]


@pytest.mark.slow
def test_a_fault_exactly_at_the_border_of_two_pieces_is_found(tmp_path: Path) -> None:
    """Each fault at both sides of a border of its own, and two sends that swap across one."""
    firsts, lasts = numbers_at_borders(tmp_path / "clean")
    assert len(firsts) > 20
    drill = PlantedDrill()
    for first, last in zip(firsts[:4], lasts[4:8], strict=True):
        drill.send(first).queue_offset_skip = 1
        drill.send(last).queue_offset_skip = 2
    for first, last in zip(firsts[8:10], lasts[10:12], strict=True):
        drill.send(first).copies = 2
        drill.send(last).copies = 0
    # What one producer put into a queue before and after the border.
    drill.swap(firsts[14], firsts[14] - 2 * QUEUES)
    summary = both_audits(drill, tmp_path / "faulty", SMALLER, SMALL, DEFAULT_SIZES)
    assert summary.duplicated == 2
    assert summary.sync_lost + summary.async_lost == 2
    assert summary.out_of_order >= 8 + 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", [0, 1])
def test_a_queue_that_most_pieces_do_not_have_goes_on_where_it_was(
    fault: int, tmp_path: Path
) -> None:
    drill = PlantedDrill()
    for number in (0, 200, 398):
        drill.send(number).own_queue = QUEUES
    drill.send(398).queue_offset_skip = fault
    # The others' queues have one record less each.
    assert both_audits(drill, tmp_path, SMALLER, SMALL).out_of_order == fault


@pytest.mark.slow
def test_one_queue_over_all_pieces(tmp_path: Path) -> None:
    drill = PlantedDrill()
    for send in drill.sends:
        send.own_queue = 0
    drill.send(300).queue_offset_skip = 7
    drill.swap(150, 190)
    # Every send between the two is in order; the two are not.
    assert both_audits(drill, tmp_path, SMALLER, SMALL).out_of_order == 1 + 2


@pytest.mark.slow
def test_many_queues_over_many_pieces(tmp_path: Path) -> None:
    drill = PlantedDrill()
    for send in drill.sends:
        send.own_queue = send.number % 130
    for number in (129, 131, 399):
        drill.send(number).queue_offset_skip = 1
    assert both_audits(drill, tmp_path, SMALLER).out_of_order == 3


faults = st.lists(
    st.tuples(
        st.integers(0, 59),
        st.sampled_from(
            ["lost", "copied", "skipped", "shifted", "other body", "unknown", "refused", "swapped"]
        ),
    ),
    max_size=12,
)


def plant_fault(drill: PlantedDrill, number: int, fault: str) -> None:
    send = drill.send(number)
    match fault:
        case "lost":
            send.copies = 0
        case "copied":
            send.copies += 1
        case "skipped":
            send.queue_offset_skip += 1
        case "shifted":
            send.answered_offset_shift = 1
        case "other body":
            send.stored_body = b"another"
        case "unknown":
            send.status = "UNKNOWN"
        case "refused":
            send.status = "REJECTED"
        case "swapped":
            drill.swap(number, (number + 8) % 60)


@pytest.mark.slow
@settings(
    max_examples=settings().max_examples // 3,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    faults=faults,
    sends_a_bucket=st.integers(7, 80),
    span=st.integers(1, 30),
    split_bytes=st.integers(4096, 9000),
    task_bytes=st.integers(1, 30_000),
    seed=st.integers(0, 99),
)
def test_any_faults_in_any_history_are_found_in_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    faults: list[tuple[int, str]],
    sends_a_bucket: int,
    span: int,
    split_bytes: int,
    task_bytes: int,
    seed: int,
) -> None:
    """The blocks of a shuffle arrive in any order, too."""
    drill = PlantedDrill()
    del drill.sends[60:]
    for number, fault in faults:
        plant_fault(drill, number, fault)
    sizes = AuditSizes(
        task_bytes_min=1,
        task_bytes_max=task_bytes,
        bucket_sends=sends_a_bucket,
        span=span,
        split_bytes=split_bytes,
    )
    both_audits(drill, tmp_path_factory.mktemp("any"), sizes, spark=plain_spark(seed))


def test_a_clean_drill_breaks_no_promise_and_replaces_the_table_before(tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "old.parquet").write_bytes(b"of an audit before")
    stages: list[str] = []
    summary = run_audit(
        plain_spark(),
        ledger,
        stores,
        master=MASTER,
        topic=TOPIC,
        out_dir=tmp_path,
        on_stage=stages.append,
    )
    assert [stage.split()[0] for stage in stages] == ["comparing", "reading", "counting"]
    assert summary.promises_broken == 0
    assert summary.byte_identical
    assert (summary.sends, summary.records) == (SENDS, SENDS)
    table = pq.read_table(tmp_path / "audit")
    assert table["finding"].to_pylist() == ["stored"] * SENDS


def test_a_ledger_in_several_files_is_one_ledger(tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    sends = pq.read_table(ledger)
    (tmp_path / "ledger").mkdir()
    pq.write_table(sends.slice(0, 150), tmp_path / "ledger" / "1.parquet", row_group_size=40)
    pq.write_table(sends.slice(150), tmp_path / "ledger" / "2.parquet")
    summary = run_audit(
        plain_spark(),
        tmp_path / "ledger",
        stores,
        master=MASTER,
        topic=TOPIC,
        out_dir=tmp_path,
        sizes=SMALL,
    )
    assert (summary.sends, summary.promises_broken) == (SENDS, 0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(AuditTableError, match="empty"):
        run_audit(
            plain_spark(), tmp_path / "empty", stores, master=MASTER, topic=TOPIC, out_dir="o"
        )


def test_logs_without_anything_are_judged_too(tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    pq.write_table(pq.read_table(ledger).slice(0, 0), ledger)
    for store in stores.values():
        for file in (store / "commitlog").iterdir():
            file.write_bytes(b"")
    summary = run_audit(plain_spark(), ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path)
    assert (summary.sends, summary.records, summary.promises_broken) == (0, 0, 0)


def test_a_master_without_a_store_is_an_error(tmp_path: Path) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    stores[MASTER] = tmp_path / "nowhere"
    with pytest.raises(NotAStoreError, match="nowhere"):
        run_audit(plain_spark(), ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path)


def test_a_task_that_fails_is_one_line_and_leaves_the_table_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, stores = PlantedDrill().write(tmp_path)
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "old.parquet").write_bytes(b"of an audit before")

    def fails(_: PlainRdd) -> list[Any]:
        raise PySparkException(
            "Job aborted\nTraceback (most recent call last):\n  File x\n    y\n"
            "OSError: [Errno 5] Input/output error: 'a'\n\n\tat org.apache.spark\nDriver stacktrace"
        )

    monkeypatch.setattr(PlainRdd, "collect", fails)
    with pytest.raises(AuditTableError) as failed:
        run_audit(plain_spark(), ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path)
    assert str(failed.value) == (
        "a task of the audit failed: OSError: [Errno 5] Input/output error: 'a'"
    )
    assert (tmp_path / "audit" / "old.parquet").exists()


def test_no_task_and_no_report_grows_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many pieces, many queues: what comes to the driver is edges, and a task is told its part."""
    drill = PlantedDrill()
    ledger, stores = drill.write(tmp_path)
    reports: list[tasks.TaskReport] = []
    collect = PlainRdd.collect

    def noting(rdd: PlainRdd) -> list[Any]:
        found = collect(rdd)
        reports.extend(row for row in found if isinstance(row, tasks.TaskReport))
        return found

    monkeypatch.setattr(PlainRdd, "collect", noting)
    run_audit(
        plain_spark(),
        ledger,
        {node: stores[node] for node in (MASTER, SLAVES[0])},
        master=MASTER,
        topic=TOPIC,
        out_dir=tmp_path,
        sizes=SMALLER,
    )
    in_log = [tasks.read_stream(report.gap_edges) for report in reports if report.gap_edges]
    assert len(in_log) > 20
    assert max(edges.num_rows for edges in in_log) == QUEUES
    stretches = pa.concat_tables(
        [tasks.read_stream(r.disorder_edges) for r in reports if r.disorder_edges]
    )
    places = zip(
        *(stretches[name].to_pylist() for name in ("producer", "queue_id", "piece")), strict=True
    )
    assert len(set(places)) == stretches.num_rows
    producers = 2
    assert stretches.num_rows <= producers * (SENDS / SMALLER.span + QUEUES)


@pytest.mark.slow
def test_without_a_word_what_the_stores_know_to_be_confirmed_counts(tmp_path: Path) -> None:
    drill = all_plants()
    ledger, stores = drill.write(tmp_path / "drill")

    def quick(name: str, confirm: int | None = None) -> AuditSummary:
        out_dir = tmp_path / name
        return run_quick_audit(
            ledger, stores, master=MASTER, topic=TOPIC, out_dir=out_dir, confirm=confirm
        )

    expected = quick("told", confirm=50_000)
    assert quick("whole") != expected
    for store in stores.values():
        note_confirmed(Path(store), 50_000)
    assert quick("known") == expected
    assert rows_of(tmp_path / "known" / "audit") == rows_of(tmp_path / "told" / "audit")
    in_spark = run_audit(
        plain_spark(), ledger, stores, master=MASTER, topic=TOPIC, out_dir=tmp_path / "spark"
    )
    assert in_spark == expected
