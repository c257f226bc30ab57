"""Figures of a node that are known whether its broker runs or not: process, rounds, loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import trio

from node.figures.figure import NO_LABELS, Figure
from node.figures.histogram_figures import histogram_figures
from node.figures.node_report import NodeReport
from store.machine.histogram import Histogram
from store.machine.process import ProcessFacts

LOOP_SECONDS: Final = 0.1
"""How long the task sleeps that finds out how late a task is."""


class LoopLateness:
    """How late a task of this node goes on; all of a node runs in one thread.

    Attributes:
        seconds: How late.
    """

    def __init__(self) -> None:
        self.seconds = Histogram()

    async def run(self) -> None:
        """Sleep and look, until cancelled."""
        while True:
            due = trio.current_time() + LOOP_SECONDS
            await trio.sleep_until(due)
            self.seconds.count(max(0.0, trio.current_time() - due))


def node_figures(
    report: NodeReport, late: LoopLateness, process: Callable[[], ProcessFacts] | None
) -> Iterator[Figure]:
    """Yield them."""
    yield Figure("tandem_broker_running", NO_LABELS, int(report.sources is not None))
    yield Figure("tandem_node_rounds_total", NO_LABELS, report.rounds_count)
    yield Figure("tandem_elections_won_total", NO_LABELS, report.elections_count)
    yield from histogram_figures("tandem_loop_late_seconds", late.seconds)
    if process is not None:
        facts = process()
        for name, value in (
            ("process_cpu_seconds_total", facts.cpu_seconds),
            ("process_resident_memory_bytes", facts.resident_bytes),
            ("process_open_fds", facts.open_files),
            ("process_max_fds", facts.files_max),
            ("process_major_page_faults_total", facts.major_page_faults),
            ("process_start_time_seconds", facts.started_seconds),
        ):
            yield Figure(name, NO_LABELS, value)
