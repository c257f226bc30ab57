"""A Spark stream beside a drill: a process of its own that reads the topic through every fault.

It begins before the load and ends when it has read what was there at the end of the last scenario.
Its process ends with ours: its standard input is a pipe from here, and so is its Java's from it.
"""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import trio

from tandem.drill.ended_process import end_process
from tandem.drill.errors import AuditError, StreamStartError
from tandem.drill.plan import Plan
from tandem.drill.recording import Recording
from tandem.drill.scenario import Seen, Stage
from tandem.drill.stream_audit import StreamSummary, audit_stream
from tandem.drill.stream_program import FINISH, StreamNews, StreamOrder
from tandem.spark.errors import SparkSourceError
from tandem.wire.untrusted import UnreadableError, json_decoder

PROGRAM: Final = ("-m", "tandem.drill.stream_program")
OUTPUT_NAME: Final = "stream"
READY_SECONDS_MAX: Final = 120.0
"""How long Java and Spark may take to start; about 10 s here."""

FINISH_SECONDS_MAX: Final = 90.0
"""How long the stream may take to read what is left when the load has ended."""

END_SECONDS_MAX: Final = 5.0
"""How long its process may take to end."""


class SparkStream:
    """The stream's process. `news` is the last that it said."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._changed = trio.Event()
        self.news = StreamNews(state="starting")

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether its process has."""
        return self._process.returncode is not None

    async def listen(self) -> None:
        """Take what it says until it ends."""
        decode = json_decoder(StreamNews)
        assert self._process.stdout is not None
        rest = b""
        async for data in self._process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                with suppress(UnreadableError):  # what a library prints is no news
                    self._say(decode(line))
        status = await self._process.wait()
        if self.news.state not in ("done", "failed"):
            self._say(StreamNews(state="failed", reason=f"its process ended with status {status}"))

    async def reached(self, *states: str) -> None:
        """Wait until it is in one of these states, or has failed."""
        while self.news.state not in (*states, "failed"):
            await self._changed.wait()

    async def ask_to_finish(self) -> None:
        """Let it read what there is and end."""
        assert self._process.stdin is not None
        with suppress(trio.BrokenResourceError):  # it has failed, and said so
            await self._process.stdin.send_all(FINISH)

    def seen(self) -> Seen:
        """How far it is, in words."""
        if self.news.state == "failed":
            return Seen(held=False, text=f"it failed: {self.news.reason}")
        done = self.news.state == "done"
        return Seen(done, f"{self.news.batches:,} batches{'' if done else ' so far'}")

    def _say(self, news: StreamNews) -> None:
        self.news = news
        self._changed.set()
        self._changed = trio.Event()


def order_of(plan: Plan, topic: str) -> StreamOrder:
    """What to stream in a drill: its topic, from the first message on, into its report."""
    data = plan.out / "data"
    return StreamOrder(
        name_servers=";".join(plan.name_servers),
        topic=topic,
        output=str(plan.out / OUTPUT_NAME),
        checkpoint=str(data / "stream-checkpoint"),
        scratch=str(data / "stream-scratch"),
        options=_tls_options(plan),
    )


def _tls_options(plan: Plan) -> dict[str, str]:
    if plan.tls is None:
        return {}
    files = {
        "tlsCaFile": plan.tls.ca_file,
        "tlsCertificateFile": plan.tls.certificate_file,
        "tlsKeyFile": plan.tls.key_file,
    }
    return {name: file for name, file in files.items() if file}


@asynccontextmanager
async def streaming(order: StreamOrder, log: Path) -> AsyncIterator[SparkStream]:
    """Have a stream that is ready; what its process and Java say on standard error goes to `log`.

    Raises:
        StreamStartError: in a group; it could not be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", *PROGRAM, msgspec.json.encode(order).decode()]
    async with trio.open_nursery() as nursery:
        with log.open("ab") as errors:
            process = await trio.lowlevel.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        stream = SparkStream(process)
        try:
            nursery.start_soon(stream.listen)
            with trio.move_on_after(READY_SECONDS_MAX):
                await stream.reached("ready", "running")
            if stream.news.state not in ("ready", "running"):
                reason = stream.news.reason or f"not ready in {READY_SECONDS_MAX:g} s"
                raise StreamStartError(
                    f"the Spark stream did not start: {reason} (see {log})", stream.news.reason
                )
            yield stream
        finally:
            nursery.cancel_scope.cancel()
            await end_process(process, END_SECONDS_MAX)


async def finish(stream: SparkStream, stage: Stage) -> None:
    """Expect that the stream reads what is left and ends.

    Raises:
        UnmetError: it did not in time, or had failed.
    """
    await stream.ask_to_finish()
    with trio.move_on_after(FINISH_SECONDS_MAX):
        await stream.reached("done")
    await stage.expect("the Spark stream has read everything", stream.seen, 0, is_liveness=False)


def audit_output(plan: Plan, recording: Recording, topic: str) -> StreamSummary:
    """Judge what the stream wrote.

    Raises:
        AuditError: it cannot be read.
    """
    try:
        return audit_stream(
            plan.out / OUTPUT_NAME,
            plan.out / "ledger.parquet",
            plan.stores[recording.master],
            topic=topic,
            confirm=recording.confirm,
        )
    except (SparkSourceError, UnreadableError, OSError) as error:
        raise AuditError(f"what the Spark stream wrote cannot be judged: {error}") from error
