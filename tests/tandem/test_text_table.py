import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.plain_text import plain
from tandem.text_table import (
    Cell,
    RunningTable,
    TableColumn,
    bare,
    cell_width,
    folded_lines,
    rich_text,
    table_lines,
    words_lines,
)
from tests.support.paths import ROOT

COLUMNS = [
    TableColumn("node"),
    TableColumn("role"),
    TableColumn("written", is_number=True),
    TableColumn("lease", rank=1),
    TableColumn("why", " "),
]
ROWS = [
    ["broker-a-0", "MASTER", "1,234", "4.2 s", ""],
    ["broker-a-1", "FOLLOWER", "99", "", "it is 312 MiB behind, and takes what it gets slowly"],
]


def lines_of(columns: list[TableColumn], rows: list[list[str]], width: int | None) -> list[str]:
    return [*map(bare, table_lines(columns, [[*map(Cell, row)] for row in rows], width))]


def test_without_a_width_a_table_is_as_wide_as_what_is_in_it() -> None:
    assert lines_of(COLUMNS, ROWS, None) == [
        "node        role      written  lease  why",
        "broker-a-0  MASTER      1,234  4.2 s",
        "broker-a-1  FOLLOWER       99         " + ROWS[1][4],
    ]


def test_words_are_folded_first() -> None:
    assert lines_of(COLUMNS, ROWS, 66) == [
        "node        role      written  lease  why",
        "broker-a-0  MASTER      1,234  4.2 s",
        "broker-a-1  FOLLOWER       99         it is 312 MiB behind, and",
        "                                      takes what it gets slowly",
    ]


def test_then_the_least_important_columns_come_below_their_row() -> None:
    assert lines_of(COLUMNS, ROWS, 56) == [
        "node        role      written  why",
        "broker-a-0  MASTER      1,234",
        "    lease: 4.2 s",
        "broker-a-1  FOLLOWER       99  it is 312 MiB behind, and",
        "                               takes what it gets slowly",
    ]
    assert lines_of(COLUMNS, ROWS, 40) == [
        "node        role      written",
        "broker-a-0  MASTER      1,234",
        "    lease: 4.2 s",
        "broker-a-1  FOLLOWER       99",
        "    why: it is 312 MiB behind, and takes",
        "         what it gets slowly",
    ]


def test_at_last_rows_are_blocks() -> None:
    assert lines_of(COLUMNS[:4], [row[:4] for row in ROWS], 19) == [
        "node:    broker-a-0",
        "role:    MASTER",
        "written: 1,234",
        "lease:   4.2 s",
        "",
        "node:    broker-a-1",
        "role:    FOLLOWER",
        "written: 99",
        "lease:",
    ]


def test_a_name_longer_than_the_terminal_has_a_line_of_its_own_and_is_whole() -> None:
    name = "a-name-" * 10
    lines = lines_of(COLUMNS[:2], [[name, "MASTER"]], 30)
    assert lines == ["node:", name, "role: MASTER"]
    assert lines_of(COLUMNS[:1], [[name], ["b"]], 30) == ["node", name, "b"]


def test_wide_characters_count_as_two_and_what_moves_terminals_is_spelled_out() -> None:
    lines = lines_of(
        [TableColumn("topic"), TableColumn("n", is_number=True)],
        [["订单", "1"], ["a\x1b[2J\n", "2"], ["e\u0301", "3"]],
        None,
    )
    assert lines == ["topic       n", "订单        1", "a\\x1b[2J\\n  2", "e\u0301           3"]
    assert {cell_width(line) for line in lines} == {13}


def test_wide_words_are_broken_where_the_line_ends_and_others_stay_whole() -> None:
    assert folded_lines("订单订单 x", 5) == ["订单", "订单", "x"]
    assert folded_lines("see /a/long/path now", 8) == ["see", "/a/long/path", "now"]
    assert folded_lines("a-name-that-is-long, b", 8, ", ") == ["a-name-that-is-long,", "b"]


def test_a_sentence_hangs_below_its_first_line() -> None:
    assert [*map(bare, words_lines("one two three four", 12, indent=2))] == [
        "  one two",
        "    three",
        "    four",
    ]
    assert [*map(bare, words_lines("one two", None, indent=2))] == ["  one two"]


def test_a_sentence_moves_no_cursor() -> None:
    assert [*map(bare, words_lines("a\x1b[2J\n b", None))] == ["a\\x1b[2J\\n b"]
    assert [*map(bare, words_lines("a\x1b[2J b", 9))] == ["a\\x1b[2J", "  b"]


def test_a_table_that_runs_grows_and_says_its_titles_again_if_columns_leave() -> None:
    table = RunningTable([TableColumn("topic"), TableColumn("tag")], 20, [8, 4])
    said = [table.head(), table.row([Cell("a"), Cell("b")])]
    said.append(table.row([Cell("a-longer-one"), Cell("b")]))
    assert [bare(line) for lines in said for line in lines] == [
        "topic     tag",
        "a         b",
        "a-longer-one  b",
    ]
    narrow = table.row([Cell("a-name-for-all-of-it"), Cell("b")])
    assert [*map(bare, narrow)] == ["", "topic:", "a-name-for-all-of-it", "tag:   b"]


def test_styles_are_kept_for_terminals_alone() -> None:
    lines = table_lines([TableColumn("a")], [[Cell("x", "red")]], 80)
    text = rich_text(lines)
    assert text.plain == "a\nx"
    assert [str(span.style) for span in text.spans] == ["bold", "red"]


NAMES = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "Cc"]), min_size=1, max_size=25
)
WORDS = st.lists(st.text("abc订", min_size=1, max_size=12), max_size=12).map(" ".join)


@given(
    st.lists(st.tuples(NAMES, NAMES, st.integers().map("{:,}".format), WORDS), max_size=5),
    st.integers(60, 200),
)
def test_nothing_is_cut_and_no_line_is_too_long(
    rows: list[tuple[str, str, str, str]], width: int
) -> None:
    columns = [TableColumn("a"), TableColumn("b", rank=1), TableColumn("c"), TableColumn("d", " ")]
    lines = table_lines(columns, [[*map(Cell, row)] for row in rows], width)
    text = "\n".join(map(bare, lines))
    widths = [cell_width(bare(line)) for line in lines]
    names = [plain(cell).rstrip(" ") for row in rows for cell in row[:3]]
    assert all(name in text for name in names)
    assert max(widths, default=0) <= max(width, *(cell_width(name) for name in [*names, ""]))
    assert not any(bare(line).endswith(" ") for line in lines)


@pytest.mark.parametrize("width", [None, 1, 60])
def test_a_table_without_rows_is_its_titles(width: int | None) -> None:
    assert len(lines_of(COLUMNS, [], width)) == (0 if width == 1 else 1)


def test_no_command_draws_tables_of_its_own() -> None:
    files = [file for name in ("cli", "drill") for file in (ROOT / "tandem" / name).rglob("*.py")]
    assert files
    assert not [file for file in files if "rich.table" in file.read_text(encoding="utf-8")]
