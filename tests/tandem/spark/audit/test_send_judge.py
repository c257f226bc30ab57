"""Verdict by verdict: tests/tandem/spark/audit/test_job.py compares whole tables."""

from typing import Any

import pyarrow as pa
import pytest

from tandem.spark.audit.record_rows import RECORDS
from tandem.spark.audit.send_judge import SENDS, SendJudge


def a_send(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a field holds
    return {
        "send_id": name,
        "scenario": "s",
        "phase": "p",
        "producer": "sync-1",
        "sequence": 1,
        "mode": "sync",
        "status": "SEND_OK",
        "body_crc32": 7,
        "reason": "",
        "queue_id": 0,
        "queue_offset": 5,
        "physical_offset": 500,
        "attempts": 1,
        **fields,
    }


def a_record(keys: str | None, at: int = 500, crc: int = 7) -> dict[str, Any]:
    return {
        "queue_id": 0,
        "queue_offset": at // 100,
        "physical_offset": at,
        "keys": keys,
        "body_crc": crc,
    }


def judge(*sends: dict[str, Any], is_fenced: bool = False) -> SendJudge:
    return SendJudge(pa.Table.from_pylist(list(sends), SENDS), "a", is_fenced=is_fenced)


def records(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), RECORDS)


def verdicts(judge: SendJudge) -> list[tuple[str, str, int | None, int | None]]:
    names = ("finding", "send_id", "copies", "physical_offset")
    return [tuple(row[name] for name in names) for row in judge.verdicts().to_pylist()]


def details(rows: pa.Table) -> list[str]:
    found: list[str] = rows["detail"].to_pylist()
    return found


def test_the_first_copy_counts_whatever_portion_it_comes_in() -> None:
    judging = judge(a_send("x", attempts=3))
    judging.see(records(a_record("x", 700), a_record("x", 500)))
    judging.see(records(a_record("x", 300)))
    assert verdicts(judging) == [("stored", "x", 3, 300), ("stored_again", "x", 3, 300)]
    assert judging.stored().select(["send_id", "queue_offset"]).to_pylist() == [
        {"send_id": "x", "queue_offset": 3}
    ]


def test_a_send_is_at_its_place_if_any_copy_is() -> None:
    there = judge(a_send("x", attempts=2))
    there.see(records(a_record("x", 300)))
    there.see(records(a_record("x", 500)))
    assert [finding for finding, *_ in verdicts(there)] == ["stored", "stored_again"]
    elsewhere = judge(a_send("x"))
    elsewhere.see(records(a_record("x", 300)))
    assert verdicts(elsewhere)[1] == ("misplaced", "x", 1, 300)
    said = "the answer said queue 0, offset 5, physical offset 500"
    assert details(elsewhere.verdicts())[1] == said


@pytest.mark.parametrize(
    ("mode", "status", "expected"),
    [("sync", "SEND_OK", True), ("async", "SEND_OK", False), ("sync", "UNKNOWN", False)],
)
def test_in_a_fenced_group_only_an_acknowledged_sync_send_can_be_misplaced(
    mode: str, status: str, *, expected: bool
) -> None:
    judging = judge(a_send("x", mode=mode, status=status), is_fenced=True)
    judging.see(records(a_record("x", 300)))
    assert ("misplaced" in [finding for finding, *_ in verdicts(judging)]) == expected


def test_a_portion_says_its_phantoms_and_why() -> None:
    judging = judge(a_send("x"), a_send("refused", status="REJECTED", reason="because"))
    rows = records(
        a_record("nobody"),
        a_record(None),
        a_record("x", crc=8),
        a_record("refused"),
        a_record("x"),
    )
    found = judging.see(rows)
    assert details(found) == [
        "no send has these keys: keys 'nobody'",
        "no send has these keys: keys ''",
        "the body is not what was sent: keys 'x'",
        "the send ended as REJECTED: keys 'refused'",
    ]
    assert found["send_id"].to_pylist() == [None, None, "x", "refused"]
    assert found["physical_offset"].to_pylist() == [500] * 4
    assert verdicts(judging) == [
        ("stored", "x", 1, 500),
        ("refused_but_stored", "refused", 1, 500),
    ]


def test_without_sends_every_record_is_a_phantom() -> None:
    judging = judge()
    assert judging.see(records(a_record("x"), a_record(None))).num_rows == 2
    assert judging.verdicts().num_rows == 0
    assert judging.stored().num_rows == 0


def test_without_records_nothing_is_there() -> None:
    judging = judge(a_send("x"), a_send("y", mode="async"), a_send("z", status="UNKNOWN"))
    assert verdicts(judging) == [
        ("sync_lost", "x", None, None),
        ("async_lost", "y", None, None),
        ("unknown_missing", "z", None, None),
    ]


def test_it_says_what_is_known_of_keys_that_were_cut_off() -> None:
    judging = judge(a_send("x"), a_send("y", mode="async"), a_send("z"))
    judging.see(records(a_record("y"), a_record("y")))
    found = judging.found(["x", "y", "never sent"])
    assert [(place and place.physical_offset, name, count) for place, name, count in found] == [
        (500, "x", 0),
        (None, "y", 2),
    ]
