"""Both rules about order in pieces, against one pass in plain Python."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tandem.spark.audit import queue_order
from tandem.spark.audit.neighbours import join, with_nothing_before
from tandem.spark.audit.queue_order import DISORDER_KEYS, GAP_KEYS
from tandem.spark.audit.send_judge import SEND_FIELDS

Finding = tuple[int, str]


def found_in(*tables: pa.Table) -> list[Finding]:
    rows = [row for table in tables for row in table.to_pylist()]
    assert {(row["finding"], row["node"]) for row in rows} <= {("out_of_order", "a")}
    return sorted((row["physical_offset"], row["detail"]) for row in rows)


def log_of(offsets: list[tuple[int, int]], start: int = 0) -> pa.Table:
    return pa.table(
        {
            "queue_id": pa.array([queue for queue, _ in offsets], pa.int32()),
            "queue_offset": pa.array([offset for _, offset in offsets], pa.int64()),
            "physical_offset": pa.array(range(start, start + len(offsets)), pa.int64()),
        }
    )


def gaps_in_one_pass(offsets: list[tuple[int, int]]) -> list[Finding]:
    wanted: dict[int, int] = {}
    found = []
    for at, (queue, offset) in enumerate(offsets):
        if offset != wanted.get(queue, 0):
            found.append((at, f"expected queue offset {wanted.get(queue, 0)}"))
        wanted[queue] = offset + 1
    return found


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Queues that mostly grow by one, here and there with a fault."""
    ends: dict[int, int] = {}
    log = []
    for queue, fault in draw(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0] * 8 + [1, -1, 5])), max_size=50)
    ):
        offset = max(ends.get(queue, 0) + fault, 0)
        ends[queue] = offset + 1
        log.append((queue, offset))
    return log


@given(logs(), st.lists(st.integers(0, 50), max_size=12))
def test_gaps_are_found_however_the_log_is_cut(log: list[tuple[int, int]], cuts: list[int]) -> None:
    bounds = sorted({0, len(log), *(min(cut, len(log)) for cut in cuts)})
    pieces = [
        join(queue_order.gap_edges(log_of(log[start:end], start)), GAP_KEYS)
        for start, end in pairwise(bounds)
    ]
    found = [queue_order.gaps(piece.followers, "a") for piece in pieces]
    if pieces:
        rest = join(queue_order.in_order([piece.edges for piece in pieces]), GAP_KEYS)
        found += [queue_order.gaps(rest.followers, "a")]
        found += [queue_order.gaps(with_nothing_before(rest.edges), "a")]
    assert found_in(*found) == gaps_in_one_pass(log)


def test_many_pieces_of_many_queues_need_little_memory_on_the_driver() -> None:
    """As a log of 100 GB with 500 queues: 36 bytes an edge, and it takes a moment."""
    queues, pieces = 500, 200
    left = []
    for number in range(pieces):
        offset = 2 * number + (number > 150)
        rows = log_of([(queue, offset + at) for at in range(2) for queue in range(queues)])
        left.append(join(queue_order.gap_edges(rows), GAP_KEYS).edges)
    assert sum(edges.nbytes for edges in left) < 40 * queues * pieces
    rest = join(queue_order.in_order(left), GAP_KEYS)
    assert queue_order.gaps(rest.followers, "a").num_rows == queues
    assert queue_order.gaps(with_nothing_before(rest.edges), "a").num_rows == 0


Stored = tuple[str, int, int, int]  # producer, queue, offset in it, sequence


def stored_of(rows: list[tuple[int, Stored]]) -> pa.Table:
    columns: dict[str, pa.Array] = {
        name: pa.array([f"{name} {at}" for at, _ in rows], pa.string()) for name in SEND_FIELDS
    }
    columns["producer"] = pa.array([row[0] for _, row in rows], pa.string())
    columns["sequence"] = pa.array([row[3] for _, row in rows], pa.int64())
    columns["queue_id"] = pa.array([row[1] for _, row in rows], pa.int32())
    columns["queue_offset"] = pa.array([row[2] for _, row in rows], pa.int64())
    columns["physical_offset"] = pa.array([at for at, _ in rows], pa.int64())
    return pa.table(columns)


def disorder_in_one_pass(rows: list[Stored]) -> list[Finding]:
    before: dict[tuple[str, int], int] = {}
    found = []
    for at, (producer, queue, _, sequence) in sorted(
        enumerate(rows), key=lambda row: (row[1][2], row[0])
    ):
        last = before.get((producer, queue), -1)
        if sequence <= last:
            found.append((at, f"after sequence {last} of the same producer"))
        before[producer, queue] = sequence
    return sorted(found)


stored_sends = st.lists(
    st.tuples(
        st.sampled_from(["p", "q"]), st.integers(0, 2), st.integers(0, 30), st.integers(0, 40)
    ),
    max_size=50,
)


@given(stored_sends, st.integers(1, 40), st.integers(1, 5))
def test_disorder_is_found_however_queues_are_cut(
    rows: list[Stored], span: int, buckets: int
) -> None:
    """Rows of one stretch of a queue are in one place, whatever else is there too."""
    shares: list[list[tuple[int, Stored]]] = [[] for _ in range(buckets)]
    for at, row in enumerate(rows):
        shares[(7 * row[1] + row[2] // span) % buckets].append((at, row))
    found, edges = [], []
    for share in shares:
        if share:
            followers, left = queue_order.disorder_in_spans(stored_of(share), span)
            found.append(queue_order.disorder(followers, "a"))
            edges.append(left)
    if edges:
        rest = join(pa.concat_tables(edges), DISORDER_KEYS)
        found.append(queue_order.disorder(rest.followers, "a"))
        found.append(queue_order.disorder(with_nothing_before(rest.edges), "a"))
    assert found_in(*found) == disorder_in_one_pass(rows)


def test_a_finding_about_disorder_names_the_send() -> None:
    followers, _ = queue_order.disorder_in_spans(
        stored_of([(0, ("p", 0, 0, 5)), (1, ("p", 0, 1, 4))]), 100
    )
    (row,) = queue_order.disorder(followers, "a").to_pylist()
    assert (row["send_id"], row["producer"], row["sequence"]) == ("send_id 1", "p", 4)
    assert (row["queue_id"], row["queue_offset"], row["physical_offset"]) == (0, 1, 1)


def test_damage_is_a_finding_that_belongs_to_no_send() -> None:
    damaged = log_of([(2, 3)]).append_column("error", pa.array(["corrupt: somehow"]))
    (row,) = queue_order.damage(damaged, "a").to_pylist()
    assert (row["finding"], row["queue_id"], row["queue_offset"]) == ("corrupt", 2, 3)
    assert (row["send_id"], row["detail"]) == (None, "corrupt: somehow")
