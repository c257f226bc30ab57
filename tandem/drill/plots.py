"""What the pictures of a drill have in common, and the second one: latency and reads over time.

Drawn as SVG that goes into the page itself, with real text: small, searchable, no fonts to ship.
Text and lines take their colours from the page, so they read on a light and on a dark one.
"""

import io
import math
from array import array
from collections.abc import Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tandem.drill.outcomes import (
    FLUSH_DISK_TIMEOUT,
    FLUSH_SLAVE_TIMEOUT,
    NOT_SENT,
    REJECTED,
    SEND_OK,
    SLAVE_NOT_AVAILABLE,
    UNKNOWN,
    SendMode,
)
from tandem.drill.timeline import BUCKET_SECONDS, Fault, Phase, Timeline, percentile

STATUS_COLOURS: Final = {
    SEND_OK: "#2f9e6e",
    SLAVE_NOT_AVAILABLE: "#e3a52f",
    FLUSH_SLAVE_TIMEOUT: "#d8722c",
    FLUSH_DISK_TIMEOUT: "#9c6b3f",
    UNKNOWN: "#8d66cf",
    REJECTED: "#cf4440",
    NOT_SENT: "#7d8aa0",
}
MODE_COLOURS: Final[dict[SendMode, str]] = {"sync": "#2b7fc4", "async": "#2f9e6e"}
NODE_COLOURS: Final = ("#2b7fc4", "#d8722c", "#8d66cf", "#2f9e6e")
FAULT_COLOUR: Final = "#cf4440"

INK: Final = "#5f6975"
"""Text; stands for the page's `--soft`."""
LINE: Final = "#c3cad2"
"""Axes and grid; stands for the page's `--line`."""
PAPER: Final = "#fefefe"
"""Below words that are over a curve; stands for the page's `--bg`."""

_OF_THE_PAGE: Final = {INK: "var(--soft)", LINE: "var(--line)", PAPER: "var(--bg)"}

_COLUMNS_MAX: Final = 480
_WIDTH_INCHES: Final = 11.0
_LABEL_SHARE_MIN: Final = 0.045

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]

STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tandem",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "grid.color": LINE,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.linewidth": 0.7,
}


class Columns:
    """Buckets, several to a column when the drill was long, as numbers to draw."""

    def __init__(self, timeline: Timeline, columns_max: int = _COLUMNS_MAX) -> None:
        count = len(timeline.buckets)
        self.width = max(1, math.ceil(count / columns_max))
        groups = [timeline.buckets[i : i + self.width] for i in range(0, count, self.width)]
        self.seconds = self.width * BUCKET_SECONDS
        self.edges = np.arange(len(groups) + 1) * self.seconds
        self.middles = (self.edges[:-1] + self.edges[1:]) / 2
        self._groups = groups

    def rates(self, *statuses: str) -> Numbers:
        """Answers a second per column, to sync and async sends together."""
        counts = [
            sum(
                count
                for bucket in group
                for (_, status), count in bucket.sends.items()
                if status in statuses
            )
            for group in self._groups
        ]
        return np.array(counts, dtype=np.float64) / self.seconds

    def reads(self) -> Numbers:
        """Messages read a second per column."""
        counts = [sum(bucket.messages_read for bucket in group) for group in self._groups]
        return np.array(counts, dtype=np.float64) / self.seconds

    def latencies_ms(self, mode: SendMode, share: float) -> list[float]:
        """A percentile of the latency per column; nan where nothing was answered."""
        merged = []
        for group in self._groups:
            values = array("f")
            for bucket in group:
                values.extend(bucket.latencies_ms[mode])
            merged.append(percentile(values, share))
        return merged


def svg_of(figure: Figure, salt: str) -> str:
    """Return a figure as an `<svg>` element without fixed size, in the colours of the page.

    `salt` tells its names from those of other figures of the page.
    """
    text = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    for colour, name in _OF_THE_PAGE.items():
        svg = svg.replace(colour, name)
    return svg[svg.index("<svg") :]


def details_svg(timeline: Timeline, end_seconds: float) -> str:
    """Return latency and reads over time, with the phases of the scenarios."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(_WIDTH_INCHES, 4.2), layout="constrained")
        panels = figure.subplots(2, 1, sharex=True, height_ratios=[2.6, 1.6])
        columns = Columns(timeline)
        _draw_latency(panels[0], columns)
        _draw_reads(panels[1], columns)
        for panel in panels:
            _draw_phases(panel, timeline.phases, end_seconds)
            draw_faults(panel, timeline)
            panel.set_xlim(first_seconds(timeline), max(end_seconds, BUCKET_SECONDS))
            panel.grid(axis="y", linewidth=0.6)
            panel.set_axisbelow(True)
        _label_phases(panels[0], timeline.phases, first_seconds(timeline), end_seconds)
        panels[-1].set_xlabel("seconds since the drill started")
    return svg_of(figure, "details")


def _draw_latency(panel: Axes, columns: Columns) -> None:
    panel.set_title("Latency of answered and failed sends, ms (log)", pad=16)
    for mode, colour in MODE_COLOURS.items():
        for share, line, name in ((0.5, ".-", "p50"), (0.99, ":", "p99")):
            panel.plot(
                columns.middles,
                columns.latencies_ms(mode, share),
                line,
                markersize=2.5,
                color=colour,
                linewidth=1.3,
                label=f"{mode} {name}",
            )
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    _legend(panel)


def _draw_reads(panel: Axes, columns: Columns) -> None:
    panel.set_title("Messages read per second")
    panel.stairs(columns.reads(), columns.edges, fill=True, color="#2b7fc4", alpha=0.75)
    panel.set_ylim(bottom=0)


def _legend(panel: Axes) -> None:
    if panel.get_legend_handles_labels()[1]:
        panel.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0.0)


def _draw_phases(panel: Axes, phases: Sequence[Phase], end_seconds: float) -> None:
    for index, phase in enumerate(phases):
        if index % 2:
            ended_at = end_seconds if phase.ended_at is None else phase.ended_at
            panel.axvspan(phase.started_at, ended_at, color=LINE, alpha=0.35, linewidth=0)


def _label_phases(
    panel: Axes, phases: Sequence[Phase], begin_seconds: float, end_seconds: float
) -> None:
    """Name the phases that are wide enough above the first panel; the page lists all.

    A phase is as wide as what the picture has of it: it may begin long after the drill, and a name
    beside it would take all of its room.
    """
    for phase in phases:
        started_at = max(begin_seconds, phase.started_at)
        ended_at = end_seconds if phase.ended_at is None else phase.ended_at
        if (ended_at - started_at) / max(end_seconds - begin_seconds, 1e-9) < _LABEL_SHARE_MIN:
            continue
        panel.annotate(
            phase.name,
            ((started_at + ended_at) / 2, 1.0),
            xycoords=panel.get_xaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
        )


def draw_faults(panel: Axes, timeline: Timeline) -> None:
    """Draw a line down a panel for each fault, and for what helps."""
    for fault in timeline.faults:
        panel.axvline(
            fault.at_seconds, color=colour_of(fault), linewidth=1.0, linestyle=(0, (3, 2))
        )


def colour_of(fault: Fault) -> str:
    """What hurts is red; what helps is not."""
    return FAULT_COLOUR if fault.hurts else INK


def first_seconds(timeline: Timeline) -> float:
    """Where pictures begin: a second before the first answer. Nodes may take long to start."""
    first = next((i for i, bucket in enumerate(timeline.buckets) if bucket.sends), 0)
    return max(0.0, first * BUCKET_SECONDS - 1.0)
