"""A make-believe cluster for scenarios: who is up decides what a send is answered."""

from typing import TYPE_CHECKING

import trio

from tandem.drill.outcomes import NOT_SENT, SEND_OK, SLAVE_NOT_AVAILABLE, SendMode
from tandem.drill.replication import Replication, SlaveReport
from tandem.drill.scenario import NodeFailedError, Stage
from tandem.drill.timeline import Phase, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

MASTER = "broker-a-0"
SLAVES = ("broker-a-1", "broker-a-2")
START_SECONDS = 0.5
CATCH_UP_SECONDS = 1.0
PRODUCERS: tuple[tuple[str, SendMode], ...] = (("sync-1", "sync"), ("async-1", "async"))


class World:
    """One master, two slaves, one producer of each mode, and a consumer."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.replication = Replication(
            {node: f"127.0.0.{number}" for number, node in enumerate(SLAVES, start=2)},
            self.timeline,
        )
        self.up = {MASTER: trio.current_time(), **dict.fromkeys(SLAVES, trio.current_time())}
        self.answer: Callable[[SendMode], str] = self.usual_answer
        self.reason = "no slave connected"
        self.refuse_to_start: str | None = None
        self.sending = False
        self.reading = True
        self.lines_left = 0
        self._latest: dict[str, tuple[Phase, str]] = {}
        self.exits: list[str] = []
        self.stage = Stage(
            master=MASTER,
            slaves=SLAVES,
            cluster=self,
            load=self,
            replication=self.replication,
            timeline=self.timeline,
            now=trio.current_time,
            status_without_slaves=SLAVE_NOT_AVAILABLE,
            expectations=[],
        )
        self.stage.scenario = "a-scenario"
        self.stage.load_seconds = 20.0

    def attached(self, node: str) -> bool:
        """Whether a slave is up, its master too, and both for long enough to have met."""
        both = (self.up.get(node), self.up.get(MASTER))
        now = trio.current_time()
        return all(since is not None and now >= since + CATCH_UP_SECONDS for since in both)

    def usual_answer(self, mode: SendMode) -> str:
        if MASTER not in self.up:
            return NOT_SENT
        if mode == "sync" and not any(self.attached(slave) for slave in SLAVES):
            return SLAVE_NOT_AVAILABLE
        return SEND_OK

    async def run(self) -> None:
        """Send, read and ask for the lag, twenty times a second."""
        while True:
            now = trio.current_time()
            for producer, mode in PRODUCERS if self.sending else ():
                phase = self.timeline.sent()
                status = self.answer(mode)
                self._latest[producer] = (phase, status)
                self.timeline.answered(
                    now,
                    phase,
                    mode,
                    status,
                    reason="" if status == SEND_OK else self.reason,
                    send_id=f"{producer}-0",
                    latency_ms=1.0,
                )
            if self.timeline.phases and self.reading:
                self.timeline.read(now, 5)
            if MASTER in self.up:
                reports = [
                    SlaveReport(f"127.0.0.{number}", 1000, 0)
                    for number, node in enumerate(SLAVES, start=2)
                    if self.attached(node)
                ]
                self.replication.sampled(now, 1000, reports)
            else:
                self.replication.silent(now)
            await trio.sleep(0.05)

    async def start(self, node: str) -> None:
        await trio.sleep(START_SECONDS)
        if self.refuse_to_start is not None:
            raise NodeFailedError(f"{node} did not start: {self.refuse_to_start}")
        self.up[node] = trio.current_time()

    async def kill(self, node: str) -> None:
        await trio.lowlevel.checkpoint()
        del self.up[node]

    def unexpected_exits(self) -> list[str]:
        return self.exits

    def latest(self, mode: SendMode, phase: Phase) -> list[str | None]:
        found = [self._latest.get(name) for name, of_mode in PRODUCERS if of_mode == mode]
        return [last[1] if last and last[0] is phase else None for last in found]

    def pause(self) -> None:
        self.sending = False

    def resume(self) -> None:
        self.sending = True

    def left_to_send(self) -> int:
        return self.lines_left

    def left_to_read(self) -> int:
        return 0 if self.reading else 7
