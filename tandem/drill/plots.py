"""The picture of a drill: outcomes, latency, lag and reads over time, with phases and faults.

Drawn once as SVG that goes into the page itself, with real text (small, searchable, no fonts to
ship) and colours that read on a light and on a dark page.
"""

import io
import itertools
import math
from array import array
from collections.abc import Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from tandem.drill.outcomes import (
    FLUSH_DISK_TIMEOUT,
    FLUSH_SLAVE_TIMEOUT,
    NOT_SENT,
    REJECTED,
    SEND_OK,
    SLAVE_NOT_AVAILABLE,
    STATUSES,
    UNKNOWN,
    SendMode,
)
from tandem.drill.switches import Band, bands
from tandem.drill.timeline import BUCKET_SECONDS, Phase, Timeline, percentile
from tandem.drill.watched_group import Change

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
SLAVE_COLOURS: Final = ("#2b7fc4", "#d8722c", "#8d66cf", "#2f9e6e")
FAULT_COLOUR: Final = "#cf4440"
INK: Final = "#7f8793"
"""Axes and text: enough contrast on white and on near-black."""

_COLUMNS_MAX: Final = 480
_WIDTH_INCHES: Final = 11.0
_LABEL_SHARE_MIN: Final = 0.045
_STRIP_SHARE: Final = 0.09
_STRIP_HEIGHT: Final = 0.7
_STRIP_COLUMNS: Final = 5
_LAG_TICKS_KIB: Final = (0, 1, 10, 100, 1024, 10 * 1024, 100 * 1024, 1024 * 1024)

_Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tandem",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.linewidth": 0.7,
}


class _Columns:
    """Buckets, several to a column when the drill was long, as numbers to draw."""

    def __init__(self, timeline: Timeline) -> None:
        count = len(timeline.buckets)
        self.width = max(1, math.ceil(count / _COLUMNS_MAX))
        groups = [timeline.buckets[i : i + self.width] for i in range(0, count, self.width)]
        self.seconds = self.width * BUCKET_SECONDS
        self.edges = np.arange(len(groups) + 1) * self.seconds
        self.middles = (self.edges[:-1] + self.edges[1:]) / 2
        self._groups = groups

    def rates(self, mode: SendMode, status: str) -> _Numbers:
        """Answers a second per column."""
        counts = [sum(bucket.sends[mode, status] for bucket in group) for group in self._groups]
        return np.array(counts, dtype=np.float64) / self.seconds

    def reads(self) -> _Numbers:
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


def timeline_svg(timeline: Timeline, end_seconds: float, history: Sequence[Change] = ()) -> str:
    """Return the picture as an `<svg>` element without fixed size."""
    figure = draw(timeline, end_seconds, history)
    text = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def draw(timeline: Timeline, end_seconds: float, history: Sequence[Change] = ()) -> Figure:
    """Draw five panels over one time axis, and of a fenced group who was master when."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_INCHES, 10.2 if history else 9.6), layout="constrained")
        heights = [3, 3, 2.6, 2.2, 1.6, *([0.6] if history else [])]
        panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        columns = _Columns(timeline)
        _draw_outcomes(
            panels[0],
            columns,
            "sync",
            "Sync sends per second (wait for other nodes); strip: share of each outcome",
        )
        _draw_outcomes(
            panels[1],
            columns,
            "async",
            "Async sends per second (master only); strip: share of each outcome",
        )
        _draw_latency(panels[2], columns)
        _draw_lag(panels[3], timeline)
        _draw_reads(panels[4], columns)
        if history:
            _draw_masters(panels[5], list(bands(history, end_seconds)), end_seconds)
        for panel in panels:
            _draw_phases(panel, timeline.phases, end_seconds)
            _draw_faults(panel, timeline)
            panel.set_xlim(0, max(end_seconds, BUCKET_SECONDS))
            panel.grid(axis="y", color=INK, alpha=0.22, linewidth=0.6)
            panel.set_axisbelow(True)
        _label_phases(panels[0], timeline.phases, end_seconds)
        _label_faults(panels[0], timeline)
        panels[-1].set_xlabel("seconds since the drill started")
    return figure


def _draw_outcomes(panel: Axes, columns: _Columns, mode: SendMode, title: str) -> None:
    panel.set_title(title, pad=26 if mode == "sync" else 6)
    rates = {status: columns.rates(mode, status) for status in STATUSES}
    seen = {status: rate for status, rate in rates.items() if rate.any()}
    total = np.sum(list(rates.values()), axis=0)
    _stack(panel, columns, seen, np.zeros(len(total)), labelled=True)
    # A cluster that is down answers few sends; the strip shows what became of those as well.
    top = max(1.0, float(total.max(initial=0.0)) * 1.05)
    strip = _STRIP_SHARE * top
    shares = _shares(seen, total)
    heights = {status: share * strip * _STRIP_HEIGHT for status, share in shares.items()}
    _stack(panel, columns, heights, np.full(len(total), -strip), labelled=False)
    panel.set_ylim(-strip, top)
    panel.set_yticks([tick for tick in panel.get_yticks() if 0 <= tick <= top])
    _legend(panel)


def _shares(rates: dict[str, _Numbers], total: _Numbers) -> dict[str, _Numbers]:
    """The share of each outcome around each column: one column alone may have no answer at all."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            status: np.nan_to_num(_around(rate) / _around(total)) for status, rate in rates.items()
        }


def _around(values: _Numbers) -> _Numbers:
    padded = np.pad(values, _STRIP_COLUMNS // 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _STRIP_COLUMNS)
    return np.asarray(windows.sum(axis=1), dtype=np.float64)


def _stack(
    panel: Axes, columns: _Columns, layers: dict[str, _Numbers], floor: _Numbers, *, labelled: bool
) -> None:
    for status, heights in layers.items():
        panel.stairs(
            floor + heights,
            columns.edges,
            baseline=floor,
            fill=True,
            color=STATUS_COLOURS[status],
            label=status if labelled else None,
        )
        floor = floor + heights


def _draw_latency(panel: Axes, columns: _Columns) -> None:
    panel.set_title("Latency of answered and failed sends, ms (log)")
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


def _draw_lag(panel: Axes, timeline: Timeline) -> None:
    panel.set_title("Replication lag (dotted: not connected)")
    for (node, points), colour in zip(
        timeline.lag.items(), SLAVE_COLOURS * len(timeline.lag), strict=False
    ):
        seconds = np.array([point.at_seconds for point in points])
        kib = np.array([point.lag_bytes / 1024 for point in points])
        connected = np.array([point.connected for point in points], dtype=bool)
        panel.plot(
            seconds, np.where(connected, kib, np.nan), color=colour, linewidth=1.4, label=node
        )
        panel.plot(seconds, np.where(connected, np.nan, kib), ":", color=colour, linewidth=1.4)
    panel.set_yscale("symlog", linthresh=1.0)
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_locator(FixedLocator(_LAG_TICKS_KIB))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(_kib))
    _legend(panel)


def _kib(value: float, _: int) -> str:
    return f"{value / 1024:g} MiB" if value >= 1024 else f"{value:g} KiB"


def _draw_reads(panel: Axes, columns: _Columns) -> None:
    panel.set_title("Messages read per second")
    panel.stairs(columns.reads(), columns.edges, fill=True, color="#2b7fc4", alpha=0.75)
    panel.set_ylim(bottom=0)


def _draw_masters(panel: Axes, masters: Sequence[Band], end_seconds: float) -> None:
    """Bands in the colours of the nodes; a gap is a time without a master, an overlap is red."""
    panel.set_title("Master (epoch)")
    nodes = sorted({band.master for band in masters})
    for band in masters:
        colour = SLAVE_COLOURS[nodes.index(band.master) % len(SLAVE_COLOURS)]
        panel.axvspan(band.start_seconds, band.end_seconds, color=colour, alpha=0.55, linewidth=0)
        width = band.end_seconds - band.start_seconds
        if width / max(end_seconds, 1e-9) >= _LABEL_SHARE_MIN:
            middle = (band.start_seconds + band.end_seconds) / 2
            panel.text(middle, 0.5, f"{band.master} ({band.epoch})", ha="center", va="center")
    for one, other in itertools.combinations(masters, 2):
        start = max(one.start_seconds, other.start_seconds)
        end = min(one.end_seconds, other.end_seconds)
        if start < end:
            panel.axvspan(start, end, color=FAULT_COLOUR, linewidth=0)
    panel.set_ylim(0, 1)
    panel.set_yticks([])


def _legend(panel: Axes) -> None:
    if panel.get_legend_handles_labels()[1]:
        panel.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0.0)


def _draw_phases(panel: Axes, phases: Sequence[Phase], end_seconds: float) -> None:
    for index, phase in enumerate(phases):
        if index % 2:
            ended_at = end_seconds if phase.ended_at is None else phase.ended_at
            panel.axvspan(phase.started_at, ended_at, color=INK, alpha=0.09, linewidth=0)


def _label_phases(panel: Axes, phases: Sequence[Phase], end_seconds: float) -> None:
    """Name the phases that are wide enough above the first panel; the page lists all."""
    for phase in phases:
        ended_at = end_seconds if phase.ended_at is None else phase.ended_at
        if (ended_at - phase.started_at) / max(end_seconds, 1e-9) < _LABEL_SHARE_MIN:
            continue
        panel.annotate(
            phase.name,
            ((phase.started_at + ended_at) / 2, 1.0),
            xycoords=panel.get_xaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
        )


def _draw_faults(panel: Axes, timeline: Timeline) -> None:
    for fault in timeline.faults:
        panel.axvline(fault.at_seconds, color=FAULT_COLOUR, linewidth=1.1, linestyle="--")


def _label_faults(panel: Axes, timeline: Timeline) -> None:
    """Number the faults; the page says what each number was."""
    for number, fault in enumerate(timeline.faults, start=1):
        panel.annotate(
            str(number),
            (fault.at_seconds, 1.0),
            xycoords=panel.get_xaxis_transform(),
            xytext=(0, 17),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            fontweight="bold",
            color="white",
            bbox={"boxstyle": "circle,pad=0.25", "color": FAULT_COLOUR},
        )
