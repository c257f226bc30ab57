"""One way to print what a command has found: a table, JSON, a line of JSON a record, or bare text.

    records = [...]                                     # frozen records, or dictionaries
    columns = [Column("group", lambda each: each.name), Column("lag", lambda each: each.lag)]
    write(output_format, Section(records, columns))

What is printed by format:

    table   columns for people. What does not fit on a terminal is folded between words, or comes
            below its row (`tandem.text_table`); elsewhere, and on a dumb terminal, lines are as
            long as they are
    json    one document, on one line
    jsonl   each record as a line of JSON, as soon as it is known
    text    the cells without titles, a record a line, tabs between them

Cells may hold foreign text: nothing in it moves the terminal.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import typer

from tandem.cli.output import print_json, print_lines, print_words, say, terminal_width
from tandem.plain_text import plain
from tandem.text_table import (
    Cell,
    Line,
    TableColumn,
    named_lines,
    table_lines,
    words_lines,
)

RecordT = TypeVar("RecordT")

Value = str | int | float | bool | None | Sequence[str]
"""A cell. Numbers are on the right and have commas; None is a dash; a list has commas."""


class Format(enum.StrEnum):
    """How a command prints what it has found."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    TEXT = "text"


FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="For people; one document; a record a line; or bare values with tabs between them.",
    ),
]


class Column(msgspec.Struct, Generic[RecordT], frozen=True):
    """One column: its title, what of a record is in it, and colours by its words."""

    title: str
    value: Callable[[RecordT], Value]
    styles: Mapping[str, str] = {}
    """Styles of rich by the text of a cell."""

    folds_at: str = ""
    """Where a cell may be folded: " " for words, ", " for names. Lists need not say so."""

    rank: int = 0
    """How early it leaves a table that is too wide: the highest first, then the rightmost."""

    is_number: bool = False
    """On the right, although its cells are texts. Numbers need not say so."""


class Section(msgspec.Struct, Generic[RecordT], frozen=True):
    """A table: records, and what is shown of each. `none`: what is said if there is no record."""

    records: Sequence[RecordT]
    columns: Sequence[Column[RecordT]]
    title: str = ""
    none: str = ""


def write(
    output_format: Format,
    section: Section[RecordT],
    *,
    document: object = None,
    text: Callable[[RecordT], str] | None = None,
) -> None:
    """Print records. `document` is the JSON if it is not a list of them; `text` a line of text."""
    match output_format:
        case Format.JSON:
            print_json(section.records if document is None else document)
        case Format.JSONL:
            for record in section.records:
                print_json(record)
        case Format.TEXT:
            for record in section.records:
                typer.echo(text(record) if text else _tabbed(record, section.columns))
        case Format.TABLE:
            print_sections([section])


def write_one(
    output_format: Format,
    record: object,
    facts: Mapping[str, Value],
    sections: Iterable[Section[Any]] = (),
) -> None:
    """Print one thing: facts about it, and what it consists of.

    As text that is the first section's rows or, without a section, the facts.
    """
    sections = list(sections)
    match output_format:
        case Format.JSON | Format.JSONL:
            print_json(record)
        case Format.TEXT if sections:
            write(output_format, sections[0])
        case Format.TEXT:
            for name, value in facts.items():
                typer.echo(f"{plain(name)}\t{plain(_bare(value))}")
        case Format.TABLE:
            print_facts(facts)
            if facts and any(section.records for section in sections):
                typer.echo()
            print_sections(sections)


def write_words(output_format: Format, record: object, words: str) -> None:
    """Print what was done: in words for people and as text, as a record for programs."""
    if output_format in (Format.JSON, Format.JSONL):
        print_json(record)
    else:
        say(words)


def print_facts(facts: Mapping[str, Value]) -> None:
    """Print names and values for people, one below the other."""
    room = max(map(len, facts), default=0) + 2
    width = terminal_width()
    for name, value in facts.items():
        first, *more = _cell(value).split("\n")
        lines = named_lines(
            plain(name), Cell(plain(first)), width, room=room, folds_at=" ", mark="", style=""
        )
        for text in more:
            lines += words_lines(text, width)
        print_lines(lines)


def print_sections(sections: Sequence[Section[Any]]) -> None:
    """Print tables for people."""
    is_first = True
    for section in sections:
        if not section.records:
            if section.none:
                typer.echo(plain(section.none), err=True)
            continue
        if not is_first:
            typer.echo()
        is_first = False
        if section.title:
            print_words(section.title)
        print_lines(section_lines(section, terminal_width()))


def section_lines(section: Section[Any], width: int | None) -> list[Line]:
    """Return the lines of a table, without its title."""
    columns = []
    for column in section.columns:
        values = [column.value(record) for record in section.records]
        has_lists = any(
            isinstance(value, Sequence) and not isinstance(value, str) for value in values
        )
        columns.append(
            TableColumn(
                column.title,
                column.folds_at or (", " if has_lists else ""),
                column.rank,
                column.is_number or _are_numbers(values),
            )
        )
    rows = [[_styled(column, record) for column in section.columns] for record in section.records]
    return table_lines(columns, rows, width)


def _styled(column: Column[Any], record: object) -> Cell:
    cell = _cell(column.value(record))
    return Cell(cell, column.styles.get(cell, ""))


def _are_numbers(values: Iterable[Value]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


def _tabbed(record: RecordT, columns: Sequence[Column[RecordT]]) -> str:
    return "\t".join(plain(_bare(column.value(record))) for column in columns)


def _cell(value: Value) -> str:
    """A value for people."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case str():
            return value
        case _:
            return ", ".join(value)


def _bare(value: Value) -> str:
    """A value for programs that read lines."""
    match value:
        case None:
            return ""
        case bool() | str():
            return _cell(value)
        case int() | float():
            return str(value)
        case _:
            return ",".join(value)
