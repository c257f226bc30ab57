from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tandem.spark.audit.neighbours import BEFORE_THE_FIRST, edges_of, join, with_nothing_before

KEYS = ("name", "number")

histories = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 9)), max_size=40
)
Row = tuple[str, int, int]


def table(rows: list[Row], start: int = 0) -> pa.Table:
    """Rows with the keys and the value, and which row of the history each is."""
    columns = {
        "name": pa.array([row[0] for row in rows], pa.string()),
        "number": pa.array([row[1] for row in rows], pa.int32()),
        "value": pa.array([row[2] for row in rows], pa.int64()),
        "row": pa.array(range(start, start + len(rows)), pa.int64()),
    }
    return pa.table(columns)


def in_one_pass(rows: list[Row]) -> dict[int, int]:
    """What each row has before it, found the plain way."""
    last: dict[tuple[str, int], int] = {}
    before = {}
    for at, (name, number, value) in enumerate(rows):
        before[at] = last.get((name, number), BEFORE_THE_FIRST)
        last[name, number] = value
    return before


def said_by(*tables: pa.Table) -> dict[int, int]:
    """What tables say that each row has before it; no row twice."""
    pairs = [(row["row"], row["before"]) for rows in tables for row in rows.to_pylist()]
    said = dict(pairs)
    assert len(said) == len(pairs)
    return said


@given(histories, st.lists(st.integers(0, 40), max_size=8), st.integers(0, 8))
def test_pieces_say_the_same_as_one_pass(rows: list[Row], cuts: list[int], middle: int) -> None:
    """The history cut anywhere, empty pieces too; and what is left is joined in two steps."""
    bounds = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    found = []
    left = []
    for piece, (start, end) in enumerate(pairwise(bounds)):
        joined = join(edges_of(table(rows[start:end], start), "value"), KEYS)
        found.append(joined.followers)
        at = joined.edges.schema.get_field_index("piece")
        number = pa.array([piece] * joined.edges.num_rows, pa.int64())
        left.append(joined.edges.set_column(at, "piece", number))
    if not left:
        return
    # In any order: the pieces have numbers.
    halves = [
        join(pa.concat_tables(some[::-1]), KEYS) for some in (left[:middle], left[middle:]) if some
    ]
    found += [half.followers for half in halves]
    joined = join(pa.concat_tables([half.edges for half in halves]), KEYS)
    found += [joined.followers, with_nothing_before(joined.edges)]
    assert said_by(*found) == in_one_pass(rows)


def test_what_is_left_has_one_row_a_key_with_its_first_row_and_its_last_value() -> None:
    joined = join(edges_of(table([("a", 0, 5), ("b", 0, 6), ("a", 0, 7)]), "value"), KEYS)
    left = [(row["name"], row["row"], row["last"]) for row in joined.edges.to_pylist()]
    assert sorted(left) == [("a", 0, 7), ("b", 1, 6)]
    assert said_by(joined.followers) == {2: 5}


def test_a_key_that_is_missing_in_a_piece_goes_on_after_it() -> None:
    pieces = [[("a", 0, 1), ("b", 0, 1)], [("b", 0, 2)], [("a", 0, 2)]]
    left = []
    for number, rows in enumerate(pieces):
        edges = join(edges_of(table(rows, 10 * number), "value"), KEYS).edges
        at = edges.schema.get_field_index("piece")
        left.append(edges.set_column(at, "piece", pa.array([number] * edges.num_rows, pa.int64())))
    joined = join(pa.concat_tables(left), KEYS)
    assert said_by(joined.followers) == {10: 1, 20: 1}
