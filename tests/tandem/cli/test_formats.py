import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tandem.cli.formats import (
    Column,
    Format,
    Section,
    print_facts,
    write,
    write_one,
    write_words,
)

EVIL = "\x1b[2J[red]x\n"


class Row(msgspec.Struct, frozen=True):
    name: str
    count: int | None = None
    is_up: bool = False
    tags: tuple[str, ...] = ()


COLUMNS: list[Column[Row]] = [
    Column("name", lambda row: row.name),
    Column("messages", lambda row: row.count),
    Column("up", lambda row: row.is_up, {"no": "red"}),
    Column("tags", lambda row: row.tags),
]
ROWS = Section([Row("a", 1234, is_up=True, tags=("x", "y")), Row("bcd")], COLUMNS, none="no rows")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def pretend(width: int) -> None:
        monkeypatch.setattr("tandem.cli.output.is_for_people", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("FORCE_COLOR", "1")

    return pretend


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_a_table_in_a_pipe_is_plain_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    write(Format.TABLE, ROWS)
    assert printed(capsys) == (
        "name  messages  up   tags\n"
        "a        1,234  yes  x, y\n"
        "bcd          -  no\n"
    )  # fmt: skip


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    write(Format.JSON, ROWS)
    assert [row["name"] for row in json.loads(printed(capsys))] == ["a", "bcd"]
    write(Format.JSON, ROWS, document={"all": ROWS.records})
    assert list(json.loads(printed(capsys))) == ["all"]


def test_jsonl_is_a_record_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    write(Format.JSONL, ROWS)
    lines = [json.loads(line) for line in printed(capsys).splitlines()]
    assert lines[0] == {"name": "a", "count": 1234, "is_up": True, "tags": ["x", "y"]}
    assert len(lines) == 2


def test_text_is_bare_cells_with_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    write(Format.TEXT, ROWS)
    assert printed(capsys) == "a\t1234\tyes\tx,y\nbcd\t\tno\t\n"
    write(Format.TEXT, ROWS, text=lambda row: row.name)
    assert printed(capsys) == "a\nbcd\n"


@pytest.mark.parametrize(("output_format", "out"), [(Format.JSON, "[]\n"), (Format.JSONL, "")])
def test_programs_get_an_empty_list_of_nothing(
    output_format: Format, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(output_format, Section[Row]([], COLUMNS, none="no rows"))
    assert capsys.readouterr() == (out, "")


def test_people_are_told_that_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    write(Format.TABLE, Section[Row]([], COLUMNS, none="no rows"))
    assert capsys.readouterr() == ("", "no rows\n")


def test_a_terminal_gets_colours(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(80)
    write(Format.TABLE, ROWS)
    assert "\x1b[31mno\x1b[0m" in printed(capsys)


def test_on_a_narrow_terminal_the_last_columns_are_below_their_row(
    terminal: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal(17)
    monkeypatch.delenv("FORCE_COLOR")
    write(Format.TABLE, ROWS)
    assert printed(capsys) == (
        "name  messages\na        1,234\n    up: yes\n    tags: x, y\nbcd          -\n    up: no\n"
    )


def test_facts_are_folded_between_words(
    terminal: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal(40)
    monkeypatch.delenv("FORCE_COLOR")
    print_facts({"what for": "how long a reader waits for an answer of a node", "may be": 7})
    assert printed(capsys) == (
        "what for  how long a reader waits for an\n          answer of a node\nmay be    7\n"
    )


@pytest.mark.parametrize("width", [0, 20, 80])
@pytest.mark.parametrize("output_format", list(Format))
def test_foreign_text_moves_no_terminal_in_any_format(
    output_format: Format,
    width: int,
    terminal: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if width:
        terminal(width)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    write(output_format, Section([Row(EVIL)], [Column("name", lambda row: row.name)], title=EVIL))
    out = printed(capsys)
    assert "\x1b" not in out
    assert "2J" in out
    assert "[red]x" in out


def test_one_thing_is_facts_and_what_it_consists_of(capsys: pytest.CaptureFixture[str]) -> None:
    facts: dict[str, Any] = {"topic": "Orders", "queues": 1200}
    write_one(Format.TABLE, Row("r"), facts, [ROWS])
    lines = printed(capsys).splitlines()
    assert lines[:2] == ["topic   Orders", "queues  1,200"]
    assert (lines[2], lines[3][:4]) == ("", "name")
    write_one(Format.JSON, Row("r"), facts, [ROWS])
    assert json.loads(printed(capsys))["name"] == "r"
    write_one(Format.TEXT, Row("r"), facts, [ROWS])
    assert printed(capsys).startswith("a\t1234")
    write_one(Format.TEXT, Row("r"), facts)
    assert printed(capsys) == "topic\tOrders\nqueues\t1200\n"


def test_what_was_done_is_words_or_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    write_words(Format.TABLE, Row("r"), "made r")
    assert printed(capsys) == "made r\n"
    write_words(Format.JSONL, Row("r"), "made r")
    assert json.loads(printed(capsys))["name"] == "r"


def test_facts_of_nothing_are_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({})
    assert printed(capsys) == ""
