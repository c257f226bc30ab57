from collections.abc import Mapping

import msgspec

from tandem.spark.audit import rules
from tandem.spark.audit.rules import BROKEN_PROMISES, AuditSummary, slave_findings

ENDS = {"a": 100, "b": 100, "c": 100, "short": 60, "other": 60, "long": 160}


def summarise(
    counts: dict[str, int],
    acknowledged: dict[str, int],
    *,
    records: int,
    log_bytes: int,
    differences: Mapping[str, int | None],
) -> AuditSummary:
    return rules.summarise(
        counts,
        acknowledged,
        records=records,
        log_bytes=log_bytes,
        differences=dict(differences),
        log_ends=ENDS,
    )


def test_counts_by_finding_become_the_summary() -> None:
    counts = {"stored": 5, "sync_lost": 1, "unknown_missing": 2, "stored_but_missing": 3}
    summary = summarise(
        counts,
        {"sync": 4, "async": 2},
        records=7,
        log_bytes=999,
        differences={"b": None, "c": 8},
    )
    assert (summary.sends, summary.records, summary.log_bytes) == (11, 7, 999)
    assert (summary.sync_acknowledged, summary.async_acknowledged) == (4, 2)
    assert (summary.unknown_missing, summary.stored_but_missing) == (5, 3)
    assert summary.identical_by_slave == {"b": True, "c": False}
    assert summary.first_difference_by_slave == {"c": 8}
    assert not summary.byte_identical


def test_every_broken_promise_counts_and_nothing_else() -> None:
    none = summarise({}, {}, records=0, log_bytes=0, differences={"b": None})
    assert none.promises_broken == 0
    assert none.byte_identical
    allowed = {"stored", "async_lost", "unknown_found", "unknown_missing", "not_stored"}
    for finding in (*allowed, "refused_but_stored"):
        assert summarise({finding: 1}, {}, records=0, log_bytes=0, differences={}) != none
        broken = summarise({finding: 1}, {}, records=0, log_bytes=0, differences={})
        assert broken.promises_broken == 0
    for finding in BROKEN_PROMISES[:-1]:
        broken = summarise({finding: 1}, {}, records=0, log_bytes=0, differences={})
        assert broken.promises_broken == 1
    differs = summarise({}, {}, records=0, log_bytes=0, differences={"b": 1})
    assert differs.promises_broken == 1


def test_a_log_that_only_lacks_the_end_is_told_from_one_with_other_bytes() -> None:
    at = {"b": None, "c": 99, "short": 60, "other": 59, "long": 100}
    summary = summarise({}, {}, records=0, log_bytes=100, differences=at)
    assert summary.shorter_slaves == ["short"]
    assert summary.slaves_not_identical == 4


def test_a_difference_is_told_in_words() -> None:
    ends = {"a": 100, "b": 100, "c": 60, "d": 160}
    rows = slave_findings({"b": 7, "c": 60, "d": 100}, ends, "a")
    assert [row.node for row in rows] == ["b", "c", "d"]
    assert rows[0].detail == "first different byte at 7; the logs end at 100 and 100"
    assert rows[1].detail == "the slave's log ends at 60, the master's at 100"
    assert rows[2].detail == "the slave's log ends at 160, the master's at 100"
    assert slave_findings({"b": None}, ends, "a") == []


def test_a_summary_travels_as_json() -> None:
    summary = summarise({"stored": 5}, {"sync": 5}, records=5, log_bytes=1, differences={"b": 3})
    assert msgspec.json.decode(msgspec.json.encode(summary), type=AuditSummary) == summary
