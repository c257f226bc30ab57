"""A checker of exactly once is worth what it finds: each fault is planted, and found."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.drill.stream_audit import (
    Content,
    Place,
    SentMessage,
    StreamSummary,
    audit_stream,
    committed_files,
    judge_stream,
    read_log,
    read_sends,
)
from tandem.wire.crc import crc32
from tandem.wire.untrusted import UnreadableError
from tests.support.planted_drill import MASTER, SENDS, TOPIC, PlantedDrill

LOG: dict[Place, Content] = {
    (queue, offset): (f"k{queue}.{offset}", 10 * queue + offset)
    for queue in range(2)
    for offset in range(5)
}
SENT = {keys: SentMessage(crc, "sync", "SEND_OK") for keys, crc in LOG.values()}

Rows = list[tuple[Place, Content]]


def judged(rows: Rows, sends: dict[str, SentMessage] | None = None) -> dict[str, int]:
    summary = judge_stream(rows, LOG, SENT | (sends or {}))
    assert summary.promises_broken == sum(count for _, count in summary.broken())
    return {name.removeprefix("stream_"): count for name, count in summary.broken()}


def test_everything_once_in_any_order_is_exactly_once() -> None:
    summary = judge_stream(reversed(LOG.items()), LOG, SENT)
    assert (summary.rows, summary.promises_broken, summary.examples) == (10, 0, ())


def test_an_offset_that_a_reader_skipped_at_the_edge_of_a_batch_is_found() -> None:
    rows = [row for row in LOG.items() if row[0] != (1, 3)]
    assert judged(rows) == {"missing": 1, "acknowledged_missing": 1}
    assert judge_stream(rows, LOG, SENT).examples[0] == "missing: queue 1, offset 3, keys 'k1.3'"


def test_a_batch_that_was_written_again_is_found() -> None:
    assert judged([*LOG.items(), *list(LOG.items())[4:7]]) == {"repeated": 3}


def test_a_row_of_another_place_is_found() -> None:
    rows = [((1, 9), row[1]) if row[0] == (1, 3) else row for row in LOG.items()]
    assert judged(rows) == {"missing": 1, "not_in_log": 1}


def test_a_row_that_nobody_sent_or_with_another_body_is_found() -> None:
    assert judged([*LOG.items(), ((0, 5), ("never", 1))]) == {"phantom": 1, "not_in_log": 1}
    changed = [((0, 0), ("k0.0", 99)), *list(LOG.items())[1:]]
    assert judged(changed) == {"phantom": 1, "not_in_log": 1, "acknowledged_missing": 1}


def test_a_row_of_a_refused_send_is_a_phantom_also_if_the_log_has_it() -> None:
    refused = {"k0.0": SentMessage(0, "sync", "REJECTED")}
    assert judged(list(LOG.items()), refused) == {"phantom": 1}


def test_only_acknowledged_sync_sends_have_to_be_there() -> None:
    allowed = {
        "lost": SentMessage(1, "async", "SEND_OK"),
        "unknown": SentMessage(2, "sync", "UNKNOWN"),
    }
    assert judged(list(LOG.items()), allowed) == {}
    acknowledged = {"lost": SentMessage(1, "sync", "SEND_OK")}
    assert judged(list(LOG.items()), acknowledged) == {"acknowledged_missing": 1}


def test_a_send_that_was_stored_twice_is_there_twice_and_not_repeated() -> None:
    log = {**LOG, (0, 5): LOG[0, 0]}
    assert judge_stream(log.items(), log, SENT).promises_broken == 0


def file_sink(output: Path, batches: list[list[str]], *, compact: bool = False) -> None:
    """What Spark's file sink leaves: a list a batch, or one of all."""
    folder = output / "_spark_metadata"
    folder.mkdir(parents=True)
    (folder / ".0.crc").write_bytes(b"\0")
    lines: list[str] = []
    for number, names in enumerate(batches):
        added = [
            json.dumps({"path": f"file://{output}/{name}".replace(" ", "%20"), "action": "add"})
            for name in names
        ]
        lines = [*lines, *added] if compact else added
        is_last = compact and number == len(batches) - 1
        name = f"{number}.compact" if is_last else str(number)
        (folder / name).write_text("\n".join(["v1", *lines]))


@pytest.mark.parametrize("compact", [False, True])
def test_the_files_that_count_are_those_that_the_sink_lists(
    tmp_path: Path, *, compact: bool
) -> None:
    output = tmp_path / "with a blank"
    file_sink(output, [["a.parquet"], [], ["b.parquet", "c.parquet"]], compact=compact)
    (output / "left by a killed task.parquet").write_bytes(b"")
    assert [path.name for path in committed_files(output)] == [
        "a.parquet",
        "b.parquet",
        "c.parquet",
    ]
    assert committed_files(tmp_path / "nothing yet") == []


def test_a_list_that_is_none_is_an_error(tmp_path: Path) -> None:
    file_sink(tmp_path, [[]])
    (tmp_path / "_spark_metadata" / "1").write_text('v1\n{"path": 7, "action": "add"}')
    with pytest.raises(UnreadableError, match="no entry of a file sink"):
        committed_files(tmp_path)


def output_of(folder: Path, log: dict[Place, Content], bodies: dict[str, bytes]) -> Path:
    """A stream's output in two files, of which the second has a row more than it should."""
    rows = [
        {"queueId": queue, "queueOffset": offset, "keys": keys, "body": bodies[keys]}
        for (queue, offset), (keys, _) in log.items()
    ]
    output = folder / "stream"
    file_sink(output, [["0.parquet"], ["1.parquet"]])
    pq.write_table(pa.Table.from_pylist(rows[:100]), output / "0.parquet")
    pq.write_table(pa.Table.from_pylist(rows[99:]), output / "1.parquet")
    return output


def test_output_log_and_ledger_are_read_as_they_are_on_the_disk(tmp_path: Path) -> None:
    drill = PlantedDrill()
    drill.send(8).copies = 0
    ledger, stores = drill.write(tmp_path)
    log = read_log(stores[MASTER], TOPIC)
    assert len(log) == SENDS - 1
    bodies = {send.send_id: send.body for send in drill.sends}
    assert all(crc == crc32(bodies[keys]) for keys, crc in log.values())
    assert len(read_sends(ledger)) == SENDS
    output = output_of(tmp_path, log, bodies)

    summary = audit_stream(output, ledger, stores[MASTER], topic=TOPIC)

    assert (summary.rows, summary.broken()) == (
        SENDS,
        [("stream_acknowledged_missing", 1), ("stream_repeated", 1)],
    )
    below = drill.send(200).place[2]
    assert len(read_log(stores[MASTER], TOPIC, below)) == 199
    cut = audit_stream(output, ledger, stores[MASTER], topic=TOPIC, confirm=below)
    assert dict(cut.broken())["stream_not_in_log"] == SENDS - 1 - 199


def test_a_summary_without_a_fault_has_nothing_to_say() -> None:
    assert StreamSummary(rows=3).broken() == []
