"""Judges the sends of a part of the ledger by the records that have their keys: rules.py in Arrow.

Records come in any number of portions, in any order. The judge keeps an entry a send, however often
its keys are in the log.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandem.spark.audit import rules
from tandem.spark.audit.cut_tails import AcknowledgedPlace
from tandem.spark.audit.findings_table import rows_of
from tandem.wire.record_scan import Bools, Int64s

SENDS: Final = pa.schema(
    [
        ("send_id", pa.string()),
        ("scenario", pa.string()),
        ("phase", pa.string()),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
        ("mode", pa.string()),
        ("status", pa.string()),
        ("body_crc32", pa.int32()),
        ("reason", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("attempts", pa.int32()),
    ]
)
SEND_FIELDS: Final = ("send_id", "scenario", "phase", "producer", "sequence", "mode", "status")
PLACE: Final = ("queue_id", "queue_offset", "physical_offset")
_NOWHERE: Final = np.iinfo(np.int64).max


class SendJudge:
    """Sees all records of some sends' keys, and then says what became of each send."""

    def __init__(self, sends: pa.Table, node: str, *, is_fenced: bool) -> None:
        self._sends = sends.select(SENDS.names).combine_chunks()
        self._node = node
        self._is_fenced = is_fenced
        count = sends.num_rows
        self._copies = np.zeros(count, np.int64)
        self._at_place = np.zeros(count, np.bool_)
        # Of the first copy in the log: queue id, queue offset, physical offset.
        self._first = [np.zeros(count, np.int64), np.zeros(count, np.int64)]
        self._first_at = np.full(count, _NOWHERE, np.int64)

    def see(self, records: pa.Table) -> pa.Table:
        """Take records into account; return those that are phantoms, as findings."""
        keys = records["keys"].combine_chunks()
        send = pc.index_in(keys, value_set=self._ids)
        known = send.is_valid().to_numpy(zero_copy_only=False)
        at: Int64s = send.fill_null(0).to_numpy().astype(np.int64)
        fits = known.copy()
        if len(self._sends):
            fits &= records["body_crc"].to_numpy() == self._numbers("body_crc32")[at]
        self._note(records, at, fits)
        return self._phantoms(records, send, known, fits)

    def verdicts(self) -> pa.Table:
        """Exactly one row a send, and one more for each that is there twice or misplaced."""
        return pa.concat_tables([self._outcomes(), self._repeated(), self._misplaced()])

    def stored(self) -> pa.Table:
        """The first copy of each send in the log, as rows of `producer_order.STORED`."""
        rows = np.flatnonzero(self._copies)
        table = self._sends.select(SEND_FIELDS).take(pa.array(rows))
        for name, values in self._places(rows).items():
            table = table.append_column(name, values)
        return table

    def found(self, send_ids: Sequence[str]) -> list[tuple[AcknowledgedPlace | None, str, int]]:
        """Of the sends among these: where a sync send was acknowledged, and how many copies."""
        wanted = pc.is_in(self._ids, value_set=pa.array(send_ids, pa.string()))
        rows = np.flatnonzero(wanted.to_numpy(zero_copy_only=False))
        chosen = self._sends.take(pa.array(rows)).to_pylist()
        return [
            (
                AcknowledgedPlace(send["send_id"], send["body_crc32"], send["physical_offset"])
                if (send["mode"], send["status"]) == ("sync", rules.SEND_OK)
                else None,
                send["send_id"],
                int(self._copies[row]),
            )
            for row, send in zip(rows.tolist(), chosen, strict=True)
        ]

    @cached_property
    def _ids(self) -> pa.Array:
        ids = self._sends["send_id"]
        return pa.concat_arrays(ids.chunks) if ids.num_chunks else pa.array([], pa.string())

    def _numbers(self, name: str) -> Int64s:
        numbers: Int64s = self._sends[name].to_numpy()
        return numbers

    def _is(self, name: str, *values: str) -> Bools:
        found = pc.is_in(self._sends[name], value_set=pa.array(values, pa.string()))
        return np.asarray(found.to_numpy(), np.bool_)

    def _note(self, records: pa.Table, at: Int64s, fits: Bools) -> None:
        """Add the records that are what their sends sent."""
        at = at[fits]
        if not len(at):
            return
        place = [records[name].to_numpy()[fits] for name in PLACE]
        np.add.at(self._copies, at, 1)
        said = [self._numbers(name)[at] for name in PLACE]
        in_log = (said[2] < 0) | (said[2] == place[2])
        self._at_place[at[in_log & (said[0] == place[0]) & (said[1] == place[1])]] = True
        np.minimum.at(self._first_at, at, place[2])
        is_first = self._first_at[at] == place[2]
        for known, values in zip(self._first, place, strict=False):
            known[at[is_first]] = values[is_first]

    def _places(self, rows: Int64s) -> dict[str, pa.Array]:
        """Where the first copies of sends are; null for those that are not in the log."""
        missing = self._copies[rows] == 0
        values = [*self._first, self._first_at]
        return {
            name: pa.array(of_all[rows], field.type, mask=missing, safe=False)
            for name, field, of_all in zip(PLACE, map(SENDS.field, PLACE), values, strict=True)
        }

    def _about(self, rows: Int64s, columns: dict[str, pa.Array | str]) -> pa.Table:
        """Findings about sends, with the place of their first copies."""
        sends = self._sends.select(SEND_FIELDS).take(pa.array(rows))
        copies = pa.array(self._copies[rows], mask=self._copies[rows] == 0)
        known = {name: sends[name] for name in SEND_FIELDS}
        return rows_of(
            {**known, **self._places(rows), "node": self._node, "copies": copies, **columns},
            len(rows),
        )

    def _outcomes(self) -> pa.Table:
        there = self._copies > 0
        accepted = self._is("status", rules.SEND_OK)
        refused = self._is("status", *rules.REFUSED_STATUSES)
        said_stored = self._is("status", *rules.STORED_STATUSES) & (not self._is_fenced)
        outcome = np.select(
            [
                accepted & there,
                accepted & self._is("mode", "sync"),
                accepted,
                refused & there,
                refused,
                there,
                said_stored,
            ],
            [
                rules.STORED,
                rules.SYNC_LOST,
                rules.ASYNC_LOST,
                rules.REFUSED_BUT_STORED,
                rules.NOT_STORED,
                rules.UNKNOWN_FOUND,
                rules.STORED_BUT_MISSING,
            ],
            rules.UNKNOWN_MISSING,
        )
        every = np.arange(len(outcome))
        columns = {"finding": pa.array(outcome, pa.string()), "detail": self._sends["reason"]}
        return self._about(every, columns)

    def _repeated(self) -> pa.Table:
        rows = np.flatnonzero(self._copies > 1)
        copies, attempts = self._copies[rows], self._numbers("attempts")[rows]
        finding = np.where(copies > attempts, rules.DUPLICATED, rules.STORED_AGAIN)
        detail = [
            f"in the log {there} times, sent {sent} times"
            for there, sent in zip(copies.tolist(), attempts.tolist(), strict=True)
        ]
        columns = {
            "finding": pa.array(finding, pa.string()),
            "detail": pa.array(detail, pa.string()),
        }
        return self._about(rows, columns)

    def _misplaced(self) -> pa.Table:
        """Sends that are in the log, but not where their answer said."""
        elsewhere = (self._copies > 0) & ~self._at_place & (self._numbers("queue_offset") >= 0)
        if self._is_fenced:
            elsewhere &= self._is("mode", "sync") & self._is("status", rules.SEND_OK)
        rows = np.flatnonzero(elsewhere)
        said = self._sends.select(PLACE).take(pa.array(rows)).to_pylist()
        detail = [
            f"the answer said queue {place['queue_id']}, offset {place['queue_offset']},"
            f" physical offset {place['physical_offset']}"
            for place in said
        ]
        columns = {"finding": rules.MISPLACED, "detail": pa.array(detail, pa.string())}
        return self._about(rows, columns)

    def _phantoms(self, records: pa.Table, send: pa.Array, known: Bools, fits: Bools) -> pa.Table:
        at = send.fill_null(0).to_numpy()
        refused = known.copy()
        if len(self._sends):
            refused &= self._is("status", *rules.REFUSED_STATUSES)[at]
        rows = np.flatnonzero(~fits | refused)
        of_send = self._sends.select(SEND_FIELDS).take(send.take(pa.array(rows)))
        status = of_send["status"].to_pylist()
        keys = records["keys"].take(pa.array(rows)).to_pylist()
        detail = [
            f"{_why_phantom(status[n], fits=fits[row])}: keys '{keys[n] or ''}'"
            for n, row in enumerate(rows.tolist())
        ]
        places = {name: records[name].take(pa.array(rows)) for name in PLACE}
        return rows_of(
            {
                **{name: of_send[name] for name in SEND_FIELDS},
                **places,
                "finding": rules.PHANTOM,
                "node": self._node,
                "detail": pa.array(detail, pa.string()),
            },
            len(rows),
        )


def _why_phantom(status: str | None, *, fits: bool) -> str:
    if status is None:
        return "no send has these keys"
    return f"the send ended as {status}" if fits else "the body is not what was sent"
