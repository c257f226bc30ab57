"""One way to print what a command has found: a table, JSON, a line of JSON a record, or bare text.

    records = [...]                                     # frozen records, or dictionaries
    columns = [Column("group", lambda each: each.name), Column("lag", lambda each: each.lag)]
    write(output_format, Section(records, columns))

What is printed by format:

    table   columns for people. On a terminal in frames; elsewhere, and on a dumb terminal, in
            plain text. Where a table is too wide, its rows are printed one below the other
    json    one document, on one line
    jsonl   each record as a line of JSON, as soon as it is known
    text    the cells without titles, a record a line, tabs between them

Cells may hold foreign text: nothing in it moves the terminal.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

import msgspec
import typer

from tandem.cli.output import is_for_people, print_json, say, shown, stdout
from tandem.plain_text import plain, plain_lines

if TYPE_CHECKING:
    from rich.console import Console

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


class Section(msgspec.Struct, Generic[RecordT], frozen=True):
    """A table: records, and what is shown of each. `none`: what is said if there is no record."""

    records: Sequence[RecordT]
    columns: Sequence[Column[RecordT]]
    title: str = ""
    none: str = ""


MARGIN_CHARACTERS: Final = 3
"""Between two columns in frames."""

FOLDED_CHARACTERS_MIN: Final = 24
"""A cell longer than this may be folded to it; a table that needs more is too wide."""


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
    width = max(map(len, facts), default=0) + 2
    for name, value in facts.items():
        typer.echo(f"{plain(name):<{width}}{plain_lines(_cell(value))}".rstrip())


def print_sections(sections: Sequence[Section[Any]]) -> None:
    """Print tables for people."""
    console = stdout()
    is_first = True
    for section in sections:
        if section.records and not is_first:
            typer.echo()
        is_first = is_first and not section.records
        if not section.records:
            if section.none:
                typer.echo(plain(section.none), err=True)
        elif not is_for_people():
            _print_plain(section)
        elif _least_width(section) > console.width:
            _print_upright(section)
        else:
            _print_framed(console, section)


def _print_framed(console: "Console", section: Section[Any]) -> None:
    from rich.table import Table

    table = Table(title=shown(section.title) or None, title_justify="left")
    for column in section.columns:
        is_number = _is_number(column, section.records)
        table.add_column(
            shown(column.title), justify="right" if is_number else "left", overflow="fold"
        )
    for record in section.records:
        table.add_row(*(_styled(column, record) for column in section.columns))
    console.print(table)


def _styled(column: Column[Any], record: object) -> str:
    cell = _cell(column.value(record))
    style = column.styles.get(cell)
    return f"[{style}]{shown(cell)}[/]" if style else shown(cell)


def _print_plain(section: Section[Any]) -> None:
    from rich.cells import cell_len

    rows = _rows(section)
    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    numbers = [_is_number(column, section.records) for column in section.columns]
    if section.title:
        typer.echo(plain(section.title))
    for row in rows:
        parts = []
        for cell, width, is_number in zip(row, widths, numbers, strict=True):
            space = " " * (width - cell_len(cell))
            parts.append(space + cell if is_number else cell + space)
        typer.echo("  ".join(parts).rstrip())


def _print_upright(section: Section[Any]) -> None:
    """For narrow terminals: the cells of a row one below the other."""
    titles = [column.title for column in section.columns]
    width = max(map(len, titles)) + 2
    if section.title:
        typer.echo(plain(section.title))
    for number, row in enumerate(_rows(section)[1:]):
        if number:
            typer.echo()
        for title, cell in zip(titles, row, strict=True):
            typer.echo(f"{plain(title):<{width}}{cell}".rstrip())


def _rows(section: Section[Any]) -> list[list[str]]:
    """All cells as text that is safe to print, the titles first."""
    titles = [plain(column.title) for column in section.columns]
    cells = [
        [plain(_cell(column.value(record))) for column in section.columns]
        for record in section.records
    ]
    return [titles, *cells]


def _least_width(section: Section[Any]) -> int:
    """How wide a terminal has to be, so that no cell is folded to a few characters."""
    columns = zip(*_rows(section), strict=True)
    least = [min(max(map(len, cells)), FOLDED_CHARACTERS_MIN) for cells in columns]
    return sum(least) + MARGIN_CHARACTERS * len(least) + 1


def _is_number(column: Column[Any], records: Iterable[object]) -> bool:
    values = [column.value(record) for record in records]
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
