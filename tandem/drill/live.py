"""What a person sees while the drill runs.

Events (phases, faults, what was expected and seen) are printed as lines, one after another, on any
output. On a terminal a table below them shows the present: rates by outcome, lag, consumers.
Everything is read from the timeline; nobody has to report to this module.
"""

from collections.abc import Callable
from typing import Final

import trio
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tandem.drill.outcomes import SEND_OK, STATUSES, SendMode
from tandem.drill.replication import Replication
from tandem.drill.scenario import Expectation
from tandem.drill.timeline import Timeline
from tandem.text_table import GAP, Cell, Line, Span, named_lines, rich_text

REFRESH_SECONDS: Final = 0.25
STATUS_LINE_SECONDS: Final = 5.0
"""Without a terminal: how often one line says how it goes."""


class Events:
    """Turns what is new in a timeline into lines, in the order in which it happened."""

    def __init__(self, timeline: Timeline, expectations: list[Expectation]) -> None:
        self._timeline = timeline
        self._expectations = expectations
        self._seen = (0, 0, 0)

    def fresh(self) -> list[Text]:
        """The lines since the last call."""
        phases, faults, expectations = self._seen
        found = [
            *(
                (phase.started_at, 0, Text(f"{phase.scenario}: {phase.name}", "bold"))
                for phase in self._timeline.phases[phases:]
            ),
            *(
                (fault.at_seconds, 1, Text(f"  ⚡ {fault.text}", "bold red"))
                for fault in self._timeline.faults[faults:]
            ),
            *(
                (expectation.at_seconds, 2, _expectation_line(expectation))
                for expectation in self._expectations[expectations:]
            ),
        ]
        self._seen = (
            len(self._timeline.phases),
            len(self._timeline.faults),
            len(self._expectations),
        )
        found.sort(key=lambda entry: entry[:2])
        return [Text(f"{at:6.1f} s  ", "dim").append_text(line) for at, _, line in found]


def _expectation_line(expectation: Expectation) -> Text:
    if expectation.held:
        after = f" ({expectation.waited_seconds:.1f} s)" if expectation.waited_seconds else ""
        return Text(f"  ✓ {expectation.expected}{after}", "green")
    return Text(f"  ✗ expected: {expectation.expected}; seen: {expectation.seen}", "bold red")


class LiveView:
    """Shows one drill on a console until it is cancelled."""

    def __init__(
        self,
        *,
        console: Console,
        timeline: Timeline,
        expectations: list[Expectation],
        replication: Replication,
        left_to_read: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self._console = console
        self._timeline = timeline
        self._events = Events(timeline, expectations)
        self._replication = replication
        self._left_to_read = left_to_read
        self._now = now

    async def run(self) -> None:
        """Refresh until cancelled; what is new by then is still printed."""
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            # Without a refresh thread of its own: this task refreshes.
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                await self._refresh(lambda: live.update(self.table(), refresh=True), 0.0)
        else:
            await self._refresh(self._print_status, STATUS_LINE_SECONDS)

    async def _refresh(self, show: Callable[[], None], every_seconds: float) -> None:
        due = self._now() + every_seconds
        try:
            while True:
                self._print_events()
                if self._now() >= due:
                    show()
                    due += every_seconds
                await trio.sleep(REFRESH_SECONDS)
        finally:
            self._print_events()

    def _print_events(self) -> None:
        for line in self._events.fresh():
            self._console.print(line, soft_wrap=True, highlight=False)

    def _print_status(self) -> None:
        self._console.print(self.status_line(), soft_wrap=True, highlight=False)

    def status_line(self) -> Text:
        """One line for outputs that are not a terminal."""
        now = self._now()
        sync, asynchronous = self._rate_cell("sync"), self._rate_cell("async")
        return Text(
            f"{now:6.1f} s    sync {sync.text}; async {asynchronous.text};"
            f" {self._replication}; {self._left_to_read():,} messages to read"
        )

    def _rates(self, mode: SendMode) -> list[tuple[str, int]]:
        lately = self._timeline.sends_lately(self._now())
        return [
            (status, count)
            for status in STATUSES
            for (of_mode, of_status), count in lately.items()
            if of_mode == mode and of_status == status
        ]

    def table(self) -> Text:
        """The present, as a table."""
        if not self._timeline.phases:
            return Text("starting the cluster …", "bold")
        phase = self._timeline.phase
        facts = {
            "sync sends": self._rate_cell("sync"),
            "async sends": self._rate_cell("async"),
        }
        known = self._replication.master_answers
        for node, state in self._replication.states.items():
            facts[node] = Cell(str(state) if known else "the master does not answer")
        read = sum(bucket.messages_read for bucket in self._timeline.buckets[-5:-1])
        facts["consumers"] = Cell(f"{read:,}/s read, {self._left_to_read():,} behind")
        room = max(map(len, facts)) + GAP
        lines: list[Line] = [
            [],
            [
                Span(f"{phase.scenario}: {phase.name}", "bold"),
                Span(f"   {self._now():.1f} s", "dim"),
            ],
        ]
        for name, cell in facts.items():
            lines += named_lines(
                name, cell, self._console.width, room=room, folds_at=", ", mark="", style=""
            )
        return rich_text(lines)

    def _rate_cell(self, mode: SendMode) -> Cell:
        rates = self._rates(mode)
        text = ", ".join(f"{count:,}/s {status}" for status, count in rates)
        is_good = {status for status, _ in rates} <= {SEND_OK}
        return Cell(text or "none", "" if not rates else "green" if is_good else "yellow")
