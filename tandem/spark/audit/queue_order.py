"""Two rules about order, each judged in pieces (see `neighbours`).

    gaps       in the order of the log, a queue's offsets follow each other: 0, 1, 2, …
    disorder   in the order of a queue, the sequences of one producer rise

Gaps are looked for where records are read, so the pieces are stretches of the log. The other rule
needs the first copy of each send; its pieces are stretches of a queue, `span` offsets each.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandem.spark.audit import rules
from tandem.spark.audit.findings_table import rows_of
from tandem.spark.audit.neighbours import edges_of, join
from tandem.spark.audit.send_judge import PLACE, SEND_FIELDS

GAP_KEYS: Final = ("queue_id",)
DISORDER_KEYS: Final = ("producer", "queue_id")


def gap_edges(records: pa.Table) -> pa.Table:
    """Return records of the log, in its order, as edges; to be joined by GAP_KEYS."""
    return edges_of(records.select(PLACE), "queue_offset")


def gaps(followers: pa.Table, node: str) -> pa.Table:
    """Findings: where a queue offset is not the one after its predecessor's in the log."""
    wanted = pc.add(followers["before"], 1)
    is_gap = pc.not_equal(followers["queue_offset"], wanted)
    found, expected = followers.filter(is_gap), wanted.filter(is_gap)
    detail = [f"expected queue offset {offset}" for offset in expected.to_pylist()]
    return rows_of(
        {
            **{name: found[name] for name in PLACE},
            "finding": rules.OUT_OF_ORDER,
            "node": node,
            "detail": pa.array(detail, pa.string()),
        },
        found.num_rows,
    )


def span_of(stored: pa.Table, span: int) -> pa.Array:
    """Return for each stored send which stretch of its queue it is in."""
    return pa.array(stored["queue_offset"].to_numpy() // span)


def disorder_in_spans(stored: pa.Table, span: int) -> tuple[pa.Table, pa.Table]:
    """Compare stored sends within stretches of queues, of which all rows are here.

    Returns the followers, and edges whose pieces are the stretches; to be joined by DISORDER_KEYS.
    """
    order = [("queue_offset", "ascending"), ("physical_offset", "ascending")]
    rows = stored.append_column("span", span_of(stored, span)).sort_by(order)
    joined = join(edges_of(rows, "sequence"), (*DISORDER_KEYS, "span"))
    edges = joined.edges.drop_columns(["piece"]).rename_columns({"span": "piece"})
    return joined.followers, edges


def disorder(followers: pa.Table, node: str) -> pa.Table:
    """Findings: records that a producer sent before the one that precedes them in their queue."""
    is_wrong = pc.less_equal(followers["sequence"], followers["before"])
    found = followers.filter(is_wrong)
    detail = [
        f"after sequence {before} of the same producer" for before in found["before"].to_pylist()
    ]
    return rows_of(
        {
            **{name: found[name] for name in (*SEND_FIELDS, *PLACE)},
            "finding": rules.OUT_OF_ORDER,
            "node": node,
            "detail": pa.array(detail, pa.string()),
        },
        found.num_rows,
    )


def damage(damaged: pa.Table, node: str) -> pa.Table:
    """Findings: what cannot be read as written."""
    return rows_of(
        {
            **{name: damaged[name] for name in PLACE},
            "finding": rules.CORRUPT,
            "node": node,
            "detail": damaged["error"],
        },
        damaged.num_rows,
    )


def in_order(pieces: list[pa.Table]) -> pa.Table:
    """Number edges of several pieces by their order, and put them together."""
    numbered = [
        edges.set_column(
            edges.schema.get_field_index("piece"),
            "piece",
            pa.array(np.full(edges.num_rows, number, np.int64)),
        )
        for number, edges in enumerate(pieces)
    ]
    return pa.concat_tables(numbered)
