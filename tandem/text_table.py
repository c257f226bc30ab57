"""Tables of text: rows and a width in, lines out.

    columns = [TableColumn("node"), TableColumn("lag", is_number=True), TableColumn("why", " ")]
    for line in table_lines(columns, rows, width=80):
        print(bare(line))

Names, numbers and times are never cut or broken. What is done where a table does not fit, in this
order:

1. columns of words are folded between words;
2. the least important columns leave the table: what they have of a row comes below that row, as
   `title: value`;
3. if two columns do not fit beside each other either, each row is a block of lines, `title: value`.

Without a width, which is how files and pipes are, a table is as wide as what is in it. A name that
is longer than the whole width has a line of its own, for the terminal to break: it can be copied
there. Words in wide characters, whose scripts have no blanks, are broken anywhere. No line has
blanks at its end. What is foreign in a cell is spelled out before it is measured, and wide
characters count as two.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tandem.plain_text import plain

if TYPE_CHECKING:
    from rich.text import Text

GAP: Final = 2
"""Blanks between two columns."""

INDENT: Final = 4
"""Blanks before what comes below a row."""

FOLDED_WIDTH_MIN: Final = 24
"""A column of words is not folded to less, if it is wider."""

TITLE_STYLE: Final = "bold"
BELOW_STYLE: Final = "dim"


class TableColumn(msgspec.Struct, frozen=True):
    """A column. `folds_at` is where its cells may be folded: " ", ", ", or "" for nowhere.

    `rank` says how early the column leaves a table that is too wide: the highest first, of equal
    ones the rightmost. The first column of all stays.
    """

    title: str
    folds_at: str = ""
    rank: int = 0
    is_number: bool = False


class Cell(NamedTuple):
    """What is in a row under a title. `style`: one of rich, for terminals."""

    text: str
    style: str = ""


class Span(NamedTuple):
    """A part of a line. `style`: one of rich, for terminals."""

    text: str
    style: str = ""


Line = list[Span]
Row = Sequence[Cell]


def table_lines(
    columns: Sequence[TableColumn], rows: Sequence[Row], width: int | None
) -> list[Line]:
    """Return a table with its titles. None of its lines is wider than `width`, if there is one."""
    table = RunningTable(columns, width)
    table.measure(rows)
    lines = table.head()
    for row in rows:
        lines += table.row(row)
    return lines


class RunningTable:
    """A table whose rows come one after the other: its columns grow when they have to.

    `widths` says how wide they are at first. What was printed stays as it is; if another set of
    columns fits from then on, the titles come again.
    """

    def __init__(
        self, columns: Sequence[TableColumn], width: int | None, widths: Sequence[int] = ()
    ) -> None:
        self._columns = [
            msgspec.structs.replace(column, title=plain(column.title)) for column in columns
        ]
        self._width = width
        titles = [cell_width(column.title) for column in self._columns]
        self._widths = [max(pair) for pair in zip(titles, widths or titles, strict=True)]
        self._least = list(titles)
        for index, column in enumerate(columns):
            if not column.folds_at:
                self._least[index] = self._widths[index]
        self._shown: dict[int, int] = {}
        self._has_rows = False
        self._fit()

    def measure(self, rows: Sequence[Row]) -> None:
        """Make room for rows that will come."""
        for row in rows:
            self._grow(_safe(row))
        self._fit()

    def head(self) -> list[Line]:
        """Return the titles; nothing if rows are blocks."""
        if not self._shown:
            return []
        return self._beside([Cell(column.title, TITLE_STYLE) for column in self._columns])

    def row(self, row: Row) -> list[Line]:
        """Return the lines of a row."""
        cells = _safe(row)
        before = list(self._shown)
        if self._grow(cells):
            self._fit()
        lines = self.head() if before != list(self._shown) else []
        lines += self._beside(cells) + self._below(cells) if self._shown else self._block(cells)
        self._has_rows = True
        return lines

    def _grow(self, cells: Row) -> bool:
        has_grown = False
        for index, (column, cell) in enumerate(zip(self._columns, cells, strict=True)):
            needed = cell_width(cell.text)
            least = _width_of_words(cell.text, column.folds_at)
            if needed > self._widths[index] or least > self._least[index]:
                has_grown = True
                self._widths[index] = max(self._widths[index], needed)
                self._least[index] = max(self._least[index], least)
        return has_grown

    def _fit(self) -> None:
        """Choose the columns that are beside each other, and their widths."""
        every = range(len(self._columns))
        if self._width is None or len(self._columns) == 1:
            self._shown = {index: self._widths[index] for index in every}
            return
        shown = list(every)
        leaving = sorted(every[1:], key=lambda index: (self._columns[index].rank, index))
        while self._needed(shown) > self._width and leaving:
            shown.remove(leaving.pop())
        self._shown = self._folded_widths(shown) if len(shown) > 1 else {}

    def _least_of(self, index: int) -> int:
        return max(self._least[index], min(self._widths[index], FOLDED_WIDTH_MIN))

    def _needed(self, shown: Sequence[int]) -> int:
        return sum(self._least_of(index) for index in shown) + GAP * (len(shown) - 1)

    def _folded_widths(self, shown: Sequence[int]) -> dict[int, int]:
        """Share what is left among the columns that want more than they need."""
        assert self._width is not None
        widths = {index: self._least_of(index) for index in shown}
        spare = self._width - self._needed(shown)
        wanting = sorted(shown, key=lambda index: self._widths[index] - widths[index])
        for number, index in enumerate(wanting):
            more = min(self._widths[index] - widths[index], spare // (len(wanting) - number))
            widths[index] += more
            spare -= more
        return widths

    def _beside(self, cells: Row) -> list[Line]:
        """The cells of the columns that are in the table, over as many lines as one of them has."""
        folded = {
            index: folded_lines(cells[index].text, width, self._columns[index].folds_at)
            for index, width in self._shown.items()
        }
        lines = []
        for number in range(max(map(len, folded.values()))):
            line: Line = []
            for index, width in self._shown.items():
                parts = folded[index]
                text = parts[number] if number < len(parts) else ""
                blanks = " " * (width - cell_width(text))
                is_number = self._columns[index].is_number
                before, after = (blanks, "") if is_number else ("", blanks)
                line += [Span(before), Span(text, cells[index].style), Span(after + " " * GAP)]
            lines.append(_trimmed(line))
        return lines

    def _below(self, cells: Row) -> list[Line]:
        """What the other columns have of a row, as many to a line as fit."""
        pairs = [
            (self._columns[index], cell)
            for index, cell in enumerate(cells)
            if index not in self._shown and cell.text not in ("", "-")
        ]
        assert self._width is not None or not pairs
        lines: list[Line] = []
        used = 0
        for column, cell in pairs:
            taken = cell_width(column.title) + 2 + cell_width(cell.text)
            spans = [Span(f"{column.title}: ", BELOW_STYLE), Span(cell.text, cell.style)]
            if lines and self._width is not None and used + GAP + taken <= self._width:
                lines[-1] += [Span(" " * GAP), *spans]
                used += GAP + taken
            elif self._width is not None:
                lines += named_lines(
                    column.title, cell, self._width, indent=INDENT, folds_at=column.folds_at
                )
                used = sum(cell_width(span.text) for span in lines[-1])
        return [_trimmed(line) for line in lines]

    def _block(self, cells: Row) -> list[Line]:
        assert self._width is not None
        room = max(cell_width(column.title) for column in self._columns) + 2
        lines: list[Line] = [[]] if self._has_rows else []
        for column, cell in zip(self._columns, cells, strict=True):
            lines += named_lines(
                column.title, cell, self._width, room=room, folds_at=column.folds_at
            )
        return lines


def named_lines(
    title: str,
    cell: Cell,
    width: int | None,
    *,
    room: int = 0,
    indent: int = 0,
    folds_at: str = "",
    mark: str = ":",
    style: str = BELOW_STYLE,
) -> list[Line]:
    """Return `title: value`, the value from column `indent + room` on; both must be safe.

    A value that does not fit beside its title comes below it.
    """
    name = f"{title}{mark} "
    name += " " * (room - cell_width(name))
    before = " " * indent
    beside = 0 if width is None else width - indent - cell_width(name)
    if width is None or cell_width(cell.text) <= beside:
        return [_trimmed([Span(before), Span(name, style), Span(cell.text, cell.style)])]
    widest_word = _width_of_words(cell.text, folds_at)
    hang = indent + INDENT
    if folds_at and widest_word <= beside and beside >= FOLDED_WIDTH_MIN:
        parts = folded_lines(cell.text, beside, folds_at)
        blanks = " " * (indent + cell_width(name))
        first = [Span(before), Span(name, style), Span(parts[0], cell.style)]
        rest = [_trimmed([Span(blanks), Span(part, cell.style)]) for part in parts[1:]]
        return [_trimmed(first), *rest]
    if widest_word > width - hang:
        hang = 0
    parts = folded_lines(cell.text, width - hang, folds_at)
    below = [_trimmed([Span(" " * hang), Span(part, cell.style)]) for part in parts]
    return [_trimmed([Span(before), Span(name, style)]), *below]


def words_lines(
    text: str, width: int | None, *, indent: int = 0, hang: int = GAP, style: str = ""
) -> list[Line]:
    """Return a sentence, folded between words; its lines but the first are indented by `hang`."""
    safe = plain(text)
    if width is None or indent + cell_width(safe) <= width:
        return [[Span(" " * indent + safe, style)]]
    first, *rest = folded_lines(safe, width - indent - hang)
    parts = [" " * indent + first, *(" " * (indent + hang) + part for part in rest)]
    return [[Span(part, style)] for part in parts]


def folded_lines(text: str, width: int, folds_at: str = " ") -> list[str]:
    """Return text in lines of a width, folded where it may be.

    A word that is wider than that stays whole, unless it is in wide characters.
    """
    if cell_width(text) <= width or not folds_at:
        return [text]
    lines = [""]
    for word in _words(text, folds_at):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_width(longer) <= width:
            lines[-1] = longer
        elif folds_at == " " and _is_wide(word):
            lines += _broken(word, width)
        else:
            lines.append(word)
    return lines if lines[0] else lines[1:]


def _broken(word: str, width: int) -> list[str]:
    lines = [""]
    for character in word:
        if lines[-1] and cell_width(lines[-1] + character) > width:
            lines.append("")
        lines[-1] += character
    return lines


def _words(text: str, folds_at: str) -> list[str]:
    *words, last = text.split(folds_at)
    return [*(word + folds_at.rstrip() for word in words), last]


def _width_of_words(text: str, folds_at: str) -> int:
    """How wide the widest part is that is not folded."""
    if not folds_at:
        return cell_width(text)
    words = _words(text, folds_at)
    if folds_at == " ":
        words = [word for word in words if not _is_wide(word)]
    return max(map(cell_width, words), default=0)


def _is_wide(word: str) -> bool:
    return cell_width(word) > len(word)


def cell_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - most texts are ASCII

    return cell_len(text)


def _safe(row: Row) -> list[Cell]:
    return [Cell(plain(cell.text), cell.style) for cell in row]


def _trimmed(line: Line) -> Line:
    """A line without blanks at its end, and without empty parts."""
    kept = [span for span in line if span.text]
    while kept and not kept[-1].text.strip(" "):
        kept.pop()
    if kept:
        kept[-1] = Span(kept[-1].text.rstrip(" "), kept[-1].style)
    return kept


def bare(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(span.text for span in line)


def rich_text(lines: Sequence[Line]) -> "Text":
    """Return lines for a console of rich, which must not wrap them."""
    from rich.text import Text  # noqa: PLC0415 - for terminals alone

    text = Text(no_wrap=True, overflow="ignore")
    for number, line in enumerate(lines):
        text.append("\n" if number else "")
        for span in line:
            text.append(span.text, span.style or None)
    return text
