"""The picture of a drill: who was master, what became of sends, how far each node was behind.

    words for each fault
    master                who it was, by colour and name
    sends                 acknowledged, unknown, refused; the longest times without the first
    lag of each node

One drawing is for wide pages and one for telephones, since text in a picture shrinks with it.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Final, Literal

import matplotlib as mpl
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tandem.drill.outcomes import (
    FLUSH_DISK_TIMEOUT,
    FLUSH_SLAVE_TIMEOUT,
    NOT_SENT,
    REJECTED,
    SEND_OK,
    SLAVE_NOT_AVAILABLE,
    UNKNOWN,
)
from tandem.drill.plots import (
    FAULT_COLOUR,
    NODE_COLOURS,
    PAPER,
    STYLE,
    Columns,
    Numbers,
    colour_of,
    draw_faults,
    first_seconds,
    svg_of,
)
from tandem.drill.story import Outage, labels, masters
from tandem.drill.switches import Band
from tandem.drill.timeline import BUCKET_SECONDS, Fault, LagPoint, Timeline
from tandem.drill.watched_group import Change

SENDS: Final = {
    "acknowledged": ((SEND_OK,), "#2f9e6e"),
    "unknown": (
        (UNKNOWN, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT, FLUSH_DISK_TIMEOUT),
        "#e3a52f",
    ),
    "refused": ((REJECTED, NOT_SENT), "#cf4440"),
}
"""What became of sends, of both modes together: statuses and colour."""

WIDE_INCHES: Final = 11.0
NARROW_INCHES: Final = 4.4
FONT_POINTS: Final = 9.0

_CHARACTER_EMS: Final = 0.65
"""About how wide a character of the words is, in ems; they are bold."""
_FRAME_SHARE: Final = 0.9
"""About how much of the width of the drawing is inside the axes."""
_ROWS_MAX: Final = 9
_ROW_INCHES: Final = 0.2
_STRIP_SHARE: Final = 0.09
_STRIP_COLUMNS: Final = 5
_LAG_TICKS_KIB: Final = (0, 10, 1024, 1024 * 1024)
_OUTAGE_ROWS_MAX: Final = 2
_OUTAGE_SHARE_MIN: Final = 0.004
"""Outages that take a smaller share of the width are too narrow to point at."""


class Words(msgspec.Struct, frozen=True):
    """A text along the time axis: where it begins or ends, and in which row it has room."""

    fault: Fault
    row: int
    side: Literal["left", "right"]


class Span(msgspec.Struct, frozen=True):
    """The time that a drawing shows, and how wide it is."""

    start_seconds: float
    end_seconds: float
    width_inches: float

    @property
    def seconds(self) -> float:
        """How long it is; never 0."""
        return max(self.end_seconds - self.start_seconds, BUCKET_SECONDS)

    def length_seconds(self, text: str) -> float:
        """How much of the time axis a text takes."""
        inches = len(text) * _CHARACTER_EMS * FONT_POINTS / 72
        return inches / (self.width_inches * _FRAME_SHARE) * self.seconds


def arrange(texts: Sequence[Fault], span: Span) -> list[Words]:
    """Give each text a row in which it covers no other; without room for it, it is left out.

    A text is to the right of its time, or to the left of it where the picture ends. It is above the
    texts whose times it covers, so that it does not cross the lines that lead to those.
    """
    found: list[Words] = []
    ends: dict[Fault, tuple[float, float]] = {}
    for text in texts:
        length = span.length_seconds(f" {text.text} ")
        start = text.at_seconds
        if start + length > span.end_seconds:
            start -= length
        ends[text] = (start, start + length)
    at_left = [text for text in texts if ends[text][0] == text.at_seconds]
    at_right = [text for text in texts if ends[text][0] != text.at_seconds]
    for text in (*reversed(at_left), *at_right):
        start, end = ends[text]
        below = [w.row for w in found if start < ends[w.fault][1] and ends[w.fault][0] < end]
        row = 1 + max(below, default=-1)
        if row < _ROWS_MAX:
            found.append(Words(text, row, "left" if text in at_left else "right"))
    return sorted(found, key=lambda words: words.fault.at_seconds)


def story_svg(
    timeline: Timeline,
    end_seconds: float,
    history: Sequence[Change],
    outages: Sequence[Outage],
    nodes: Sequence[str],
    *,
    width_inches: float = WIDE_INCHES,
) -> str:
    """Return the picture as an `<svg>` element without fixed size.

    `nodes` are those of the file; of a classic group the first is the master.
    """
    figure = draw(timeline, end_seconds, history, outages, nodes, width_inches=width_inches)
    return svg_of(figure, f"story {width_inches:g}")


def draw(
    timeline: Timeline,
    end_seconds: float,
    history: Sequence[Change],
    outages: Sequence[Outage],
    nodes: Sequence[str],
    *,
    width_inches: float = WIDE_INCHES,
) -> Figure:
    """Draw all lanes over one time axis."""
    of_masters = masters(timeline, history, end_seconds, nodes[0])
    span = Span(first_seconds(timeline), max(end_seconds, BUCKET_SECONDS), width_inches)
    words = arrange(labels(timeline.faults, of_masters), span)
    rows = 1 + max((each.row for each in words), default=0)
    lanes = [node for node in nodes if node in timeline.lag]
    heights = [0.34, 2.7, *([0.62] * len(lanes))]
    with mpl.rc_context({**STYLE, "font.size": FONT_POINTS}):
        top = rows * _ROW_INCHES + 0.45
        size = (width_inches, sum(heights) + 0.28 * len(heights) + top + 0.35)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        _draw_masters(panels[0], of_masters, nodes, span)
        _label_faults(panels[0], words)
        if timeline.buckets:
            _draw_sends(panels[1], Columns(timeline), outages)
        _label_outages(panels[1], outages, span, Columns(timeline).seconds)
        for panel, node in zip(panels[2:], lanes, strict=True):
            _draw_lag(panel, node, timeline.lag[node], _colour(node, nodes))
        if lanes:
            panels[2].set_title("Behind the master (dotted: not connected)")
        for panel in panels:
            draw_faults(panel, timeline)
            panel.set_xlim(span.start_seconds, span.end_seconds)
            panel.set_axisbelow(True)
        panels[-1].set_xlabel("seconds since the drill started")
    return figure


def _colour(node: str, nodes: Sequence[str]) -> str:
    place = nodes.index(node) if node in nodes else 0
    return NODE_COLOURS[place % len(NODE_COLOURS)]


def _label_faults(panel: Axes, words: Sequence[Words]) -> None:
    rows = 1 + max((each.row for each in words), default=0)
    panel.set_title("What was done, and who was master", pad=12 + rows * _ROW_INCHES * 72)
    for each in words:
        at = (each.fault.at_seconds, 1.0)
        colour = colour_of(each.fault)
        panel.annotate(
            each.fault.text,
            at,
            xycoords=panel.get_xaxis_transform(),
            xytext=(4 if each.side == "left" else -4, 4 + each.row * _ROW_INCHES * 72),
            textcoords="offset points",
            ha=each.side,
            va="bottom",
            color=colour,
            fontweight="bold",
            annotation_clip=False,
        )
        panel.annotate(
            "",
            at,
            xycoords=panel.get_xaxis_transform(),
            xytext=(0, 16 + each.row * _ROW_INCHES * 72),
            textcoords="offset points",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 1.0},
            annotation_clip=False,
        )


def _draw_masters(
    panel: Axes,
    of_masters: Sequence[Band],
    nodes: Sequence[str],
    span: Span,
) -> None:
    """Bands in the colours of the nodes; a gap is a time without a master, an overlap is red."""
    for band in of_masters:
        start, end = band.start_seconds, band.end_seconds
        panel.axvspan(start, end, color=_colour(band.master, nodes), linewidth=0)
        epoch = f", epoch {band.epoch}" if band.epoch else ""
        for text in (f"{band.master}{epoch}", band.master, band.master[-3:]):
            if span.length_seconds(text) <= end - start:
                middle = (start + end) / 2
                panel.text(
                    middle, 0.47, text, ha="center", va="center", color="white", fontweight="bold"
                )
                break
    for one, other in itertools.combinations(of_masters, 2):
        start = max(one.start_seconds, other.start_seconds)
        end = min(one.end_seconds, other.end_seconds)
        if start < end:
            panel.axvspan(start, end, color=FAULT_COLOUR, linewidth=0)
    panel.set_ylim(0, 1)
    panel.set_yticks([])
    panel.spines[:].set_visible(False)
    panel.tick_params(bottom=False)


def _draw_sends(panel: Axes, columns: Columns, outages: Sequence[Outage]) -> None:
    """What became of sends a second, and below it the share of each, also when there are few.

    The shares are those of a few columns together, but not across a time without an answer.
    """
    panel.set_title("Sends per second")
    rates = {name: columns.rates(*statuses) for name, (statuses, _) in SENDS.items()}
    total = np.sum(list(rates.values()), axis=0)
    top = max(1.0, float(total.max(initial=0.0)) * 1.05)
    strip = _STRIP_SHARE * top
    floor = np.zeros(len(total))
    below = np.full(len(total), -strip)
    around = _around(total)
    silent = silent_columns(columns.middles, total, outages, columns.seconds)
    for name, rate in rates.items():
        colour = SENDS[name][1]
        _stairs(panel, columns, floor, floor + rate, colour, name)
        floor = floor + rate
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.nan_to_num(_around(rate) / around) * strip * 0.7
        _stairs(panel, columns, below, below + share, colour, None)
        share[silent] = 0.0
        below = below + share
    panel.set_ylim(-strip, top * 1.3)
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    panel.set_yticks([tick for tick in panel.get_yticks() if 0 <= tick <= top])
    panel.grid(axis="y", linewidth=0.6)
    panel.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=3,
        borderaxespad=0.1,
        handlelength=0.8,
        columnspacing=0.8,
        handletextpad=0.4,
    )


def silent_columns(
    middles: Numbers, total: Numbers, outages: Sequence[Outage], column_seconds: float
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which columns are within an outage and have no answer at all."""
    silent = np.zeros(len(total), dtype=bool)
    for outage in outages:
        start, end = between_bars(outage, column_seconds)
        silent |= (start < middles) & (middles < end)
    is_empty: np.ndarray[tuple[int], np.dtype[np.bool_]] = total == 0.0
    return silent & is_empty


def _stairs(
    panel: Axes, columns: Columns, floor: Numbers, top: Numbers, colour: str, label: str | None
) -> None:
    panel.stairs(top, columns.edges, baseline=floor, fill=True, color=colour, label=label)


def _around(values: Numbers) -> Numbers:
    padded = np.pad(values, _STRIP_COLUMNS // 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _STRIP_COLUMNS)
    return np.asarray(windows.sum(axis=1), dtype=np.float64)


def between_bars(outage: Outage, column_seconds: float) -> tuple[float, float]:
    """Return from when to when an outage is shaded: whole columns, so that no bar is in it.

    What was acknowledged just before it or after it is in a column of which it has the rest.
    """
    first = math.ceil(round(outage.start_seconds / column_seconds, 6))
    last = math.floor(round(outage.end_seconds / column_seconds, 6))
    return first * column_seconds, max(first, last) * column_seconds


def _label_outages(
    panel: Axes, outages: Sequence[Outage], span: Span, column_seconds: float
) -> None:
    """Say how long nothing was acknowledged, and why, above where that was."""
    wide = [o for o in outages if o.seconds >= _OUTAGE_SHARE_MIN * span.seconds]
    texts = [Fault(o.start_seconds, f"{o.seconds:.2f} s: {o.cause}") for o in wide]
    rows = {words.fault.at_seconds: words for words in arrange(texts, span)}
    bottom, top = panel.get_ylim()
    for outage, text in zip(wide, texts, strict=True):
        panel.axvspan(
            *between_bars(outage, column_seconds),
            color=FAULT_COLOUR,
            alpha=0.14,
            linewidth=0,
            zorder=0,
        )
        words = rows.get(outage.start_seconds)
        if words is None or words.row >= _OUTAGE_ROWS_MAX:
            continue
        is_left = words.side == "left"
        panel.annotate(
            text.text,
            (
                outage.start_seconds if is_left else outage.end_seconds,
                top - (0.02 + 0.1 * words.row) * (top - bottom),
            ),
            xytext=(4 if is_left else -4, 0),
            textcoords="offset points",
            ha=words.side,
            va="top",
            color=FAULT_COLOUR,
            fontweight="bold",
            bbox={"boxstyle": "square,pad=0.1", "facecolor": PAPER, "linewidth": 0, "alpha": 0.8},
        )


def _draw_lag(panel: Axes, node: str, points: Sequence[LagPoint], colour: str) -> None:
    seconds = np.array([point.at_seconds for point in points])
    kib = np.array([point.lag_bytes / 1024 for point in points])
    connected = np.array([point.connected for point in points], dtype=bool)
    panel.fill_between(seconds, np.where(connected, kib, np.nan), color=colour, alpha=0.55)
    panel.plot(seconds, np.where(connected, np.nan, kib), ":", color=colour, linewidth=1.6)
    panel.set_yscale("symlog", linthresh=1.0)
    panel.set_ylim(0, max(16.0, float(np.nanmax(kib, initial=0.0)) * 2))
    panel.yaxis.set_major_locator(FixedLocator(_LAG_TICKS_KIB))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(_kib))
    panel.grid(axis="y", linewidth=0.6)
    panel.annotate(
        node,
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(4, -2),
        textcoords="offset points",
        va="top",
        color=colour,
        fontweight="bold",
    )


def _kib(value: float, _: int) -> str:
    if value >= 1024 * 1024:
        return f"{value / 1024 / 1024:g} GiB"
    return f"{value / 1024:g} MiB" if value >= 1024 else f"{value:g} KiB" if value else "0"
