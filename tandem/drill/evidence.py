"""What a broken promise rests on: the rule, the send's line in the ledger, and what each disk has.

The audit judges by the log of one node. For what it found, this looks into the logs of all of them:
at which places the message is, and what is at the place that the answer named.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.spark.audit import rules
from tandem.spark.audit.record_rows import rows_of_split, scan_options
from tandem.spark.audit.rules import AuditSummary
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.errors import SparkSourceError

EXAMPLES_MAX: Final = 20
"""Of all broken promises together; the table `audit` has every one."""

PLACES_MAX: Final = 5

FINDINGS: Final = (*rules.BROKEN_PROMISES, rules.ASYNC_LOST)


PROMISES: Final = (
    "sync_lost",
    "stored_but_missing",
    "duplicated",
    "phantom",
    "misplaced",
    "out_of_order",
    "corrupt",
    "acknowledged_cut",
    "slaves_not_identical",
)
"""Counts that must be 0: each one above it is a broken promise."""


def held_to(audit: AuditSummary, not_promised: Mapping[str, str]) -> int:
    """Return how many promises are broken, without those that nobody has made."""
    counts: list[int] = [getattr(audit, name) for name in PROMISES if name in not_promised]
    return audit.promises_broken - sum(counts)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of the audit. `disks` says of each node what its log has of it."""

    finding: str
    rule: str
    is_broken: bool
    """Whether it was promised otherwise."""
    send_id: str
    ledger: str
    """What the ledger has of the send, in words; empty if it belongs to none."""
    disks: dict[str, str]
    detail: str = ""

    def in_words(self) -> list[str]:
        """Return it as lines."""
        what = "broken" if self.is_broken else "not promised"
        lines = [f"{self.finding} ({what}): {self.send_id or 'no send of this drill'}"]
        lines += [f"  rule: {self.rule}"] if self.rule else []
        lines += [f"  ledger: {self.ledger}"] if self.ledger else []
        lines += [f"  audit: {self.detail}"] if self.detail else []
        return lines + [f"  {node}: {words}" for node, words in self.disks.items()]


def collect(
    out: Path,
    stores: Mapping[str, Path],
    topic: str,
    *,
    promised: Mapping[str, str],
    not_promised: Mapping[str, str],
) -> list[Evidence]:
    """Return what there is on the findings of an audit in `out`, at most EXAMPLES_MAX of them.

    Raises:
        SparkSourceError, OSError: a log or the table cannot be read.
    """
    found = _findings(out)
    if not found:
        return []
    sends = _sends(out, {row["send_id"] for row in found if row["send_id"]})
    logs = {node: _places(store, topic) for node, store in stores.items()}
    return [
        _evidence(row, sends.get(row["send_id"] or ""), logs, promised, not_promised)
        for row in found
    ]


def _findings(out: Path) -> list[dict[str, Any]]:
    table = pq.read_table(out / rules.TABLE_NAME)
    wanted = pc.is_in(table["finding"], value_set=_strings(FINDINGS))
    rows: list[dict[str, Any]] = table.filter(wanted).to_pylist()
    rows.sort(key=lambda row: (FINDINGS.index(row["finding"]), row["send_id"] or ""))
    return rows[:EXAMPLES_MAX]


def _strings(values: Iterable[str]) -> pa.Array:
    return pa.array(list(values), pa.string())


def _sends(out: Path, send_ids: set[str]) -> dict[str, dict[str, Any]]:
    table = pq.read_table(out / "ledger.parquet")
    chosen = table.filter(pc.is_in(table["send_id"], value_set=_strings(send_ids)))
    return {row["send_id"]: row for row in chosen.to_pylist()}


class _Places:
    """Where the messages of a topic are in one log."""

    def __init__(self) -> None:
        self.of_send: dict[str, list[int]] = {}
        self.at: dict[int, str] = {}
        self.end = 0
        self.trouble = ""


def _places(store: Path, topic: str) -> _Places:
    found = _Places()
    options = scan_options(str(store))
    try:
        for split in plan_splits(options):
            for rows in rows_of_split(split, options, topic):
                keys = rows.records["keys"].to_pylist()
                offsets = rows.records["physical_offset"].to_pylist()
                for key, offset in zip(keys, offsets, strict=True):
                    found.of_send.setdefault(key or "", []).append(offset)
                    found.at[offset] = key or ""
                    found.end = max(found.end, offset)
    except (SparkSourceError, OSError) as error:
        found.trouble = str(error)
    return found


def _evidence(
    row: Mapping[str, Any],
    send: Mapping[str, Any] | None,
    logs: Mapping[str, _Places],
    promised: Mapping[str, str],
    not_promised: Mapping[str, str],
) -> Evidence:
    name = row["finding"]
    count = "slaves_not_identical" if name == rules.SLAVE_DIFFERS else name
    is_broken = name in rules.BROKEN_PROMISES and count not in not_promised
    allowed = "async sends wait for no other node, so that their loss is counted and allowed"
    of_async = allowed if name == rules.ASYNC_LOST else ""
    return Evidence(
        finding=name,
        rule=not_promised.get(count) or promised.get(count) or of_async,
        is_broken=is_broken,
        send_id=row["send_id"] or "",
        ledger=_said(send) if send is not None else "",
        disks=_disks(row, send, logs),
        detail=row["detail"] or "",
    )


def _said(send: Mapping[str, Any]) -> str:
    place = (
        f", queue {send['queue_id']} offset {send['queue_offset']}, physical offset"
        f" {send['physical_offset']}"
        if send["physical_offset"] >= 0
        else ""
    )
    return (
        f"sent in {send['scenario']}, {send['phase']}; answered {send['status']} after"
        f" {send['latency_ms']:.0f} ms, attempts {send['attempts']}{place}"
    )


def _disks(
    row: Mapping[str, Any], send: Mapping[str, Any] | None, logs: Mapping[str, _Places]
) -> dict[str, str]:
    if row["finding"] == rules.SLAVE_DIFFERS:
        return {}
    named = send["physical_offset"] if send is not None else -1
    return {node: _on_disk(places, row["send_id"], named) for node, places in logs.items()}


def _on_disk(places: _Places, send_id: str | None, named: int) -> str:
    if places.trouble:
        return places.trouble
    at = places.of_send.get(send_id or "", [])
    if send_id and at:
        shown = ", ".join(map(str, at[:PLACES_MAX]))
        more = f" and {len(at) - PLACES_MAX} more" if len(at) > PLACES_MAX else ""
        return f"has it at {shown}{more}"
    instead = places.at.get(named)
    if instead is not None:
        return f"lacks it; at {named} it has {instead}"
    if named > places.end:
        return f"lacks it; its last message of the topic is at {places.end}, before {named}"
    return "lacks it"
