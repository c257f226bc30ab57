"""Exactly once from a topic through a Spark stream into Parquet, while everything is killed.

    .venv/bin/python -P -m tests.tandem.spark.campaigns.stream_exactly_once --rounds 50

A fenced group of three nodes is under load. The program of `tandem drill --spark-stream` reads it.
In each round one process gets SIGKILL at a moment that chance chooses: a Python worker of Spark,
the driver (its Java, or all of it at once, and it is started again with the same checkpoint), or
the master of the group. The next round begins when batches go on. At the end the load rests, the
stream reads what is left, and the output is compared with the log of a node and with what producers
were told: every record once, and nothing else.

`--plant` makes the stream faulty; the campaign then has to find that.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import trio

from tandem.drill import spark_stream
from tandem.drill.spark_stream import SparkStream, streaming
from tandem.drill.stream_audit import (
    SentMessage,
    StreamSummary,
    judge_stream,
    read_log,
    read_output,
)
from tandem.drill.stream_program import StreamOrder
from tandem.wire.crc import crc32
from tests.faults.real_group import TOPIC, Group, under_load, write_group

KINDS: Final = ("worker", "master", "worker", "driver", "worker")
"""Whom rounds kill, one after the other and again from the beginning."""

SETTLED_SECONDS_MAX: Final = 120.0
BATCHES_BETWEEN: Final = 2
PLANTS: Final[Mapping[str, str]] = {
    "skip": """
from tandem.drill import stream_program
start = stream_program.start_query
class Session:
    def __init__(self, session): self.readStream = Reader(session.readStream)
class Reader:
    def __init__(self, reader): self._reader = reader
    def format(self, name): return Reader(self._reader.format(name))
    def options(self, **options): return Reader(self._reader.options(**options))
    def load(self): return self._reader.load().where("queueOffset % 50 != 49")
stream_program.start_query = lambda session, order: start(Session(session), order)
""",
    "forget": """
import tempfile, msgspec
from tandem.drill import stream_program
start = stream_program.start_query
def forgetful(session, order):
    return start(session, msgspec.structs.replace(order, checkpoint=tempfile.mkdtemp()))
stream_program.start_query = forgetful
""",
}
"""Programs that do it wrong: one leaves offsets out, one begins without Spark's checkpoint."""

_RUN: Final = """
import sys
order = stream_program.decode_json(sys.argv[1].encode(), stream_program.StreamOrder)
sys.exit(stream_program.run(order))
"""


class Tally(msgspec.Struct):
    """What came of a campaign."""

    kills: Counter[str] = msgspec.field(default_factory=Counter)
    drivers_started: int = 0
    queries_ended: int = 0
    """Queries that a kill of something else than their driver ended."""
    batches: int = 0
    sent: int = 0
    acknowledged: int = 0
    summary: StreamSummary = StreamSummary(rows=0)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        found = ", ".join(f"{count} {name}" for name, count in self.summary.broken())
        return (
            f"{sum(self.kills.values())} kills ({kills}); {self.drivers_started} drivers started,"
            f" {self.queries_ended} queries ended by other kills; {self.sent:,} sent,"
            f" {self.acknowledged:,} acknowledged, {self.batches:,} batches,"
            f" {self.summary.rows:,} rows; {found or 'nothing lost, repeated or made up'}"
        )


class Campaign:
    """One campaign in a directory of its own."""

    def __init__(
        self, directory: Path, rounds: int, *, seed: int = 1, said: Callable[[str], None] = print
    ) -> None:
        self._directory = directory
        self._rounds = rounds
        self._chance = random.Random(seed)
        self._said = said
        self._sends: dict[str, SentMessage] = {}
        self._confirm = 0
        self.tally = Tally()

    async def run(self) -> Tally:
        """Play all rounds, and judge what was written."""
        spec = write_group(self._directory)
        order = StreamOrder(
            name_servers=";".join(spec.name_servers),
            topic=TOPIC,
            output=str(self._directory / "output"),
            checkpoint=str(self._directory / "checkpoint"),
            scratch=str(self._directory / "scratch"),
            trigger_ms=100,
        )
        async with under_load(spec) as group:
            finished = False
            while not finished:
                finished = await self._life(order, group)
        log = read_log(spec.nodes[0].directory, TOPIC, self._confirm)
        self.tally.summary = judge_stream(read_output(Path(order.output)), log, self._sends)
        return self.tally

    async def _note_what_is_there(self, group: Group) -> None:
        """While the load rests: where the log ends, and what producers were told."""
        status = await group.status(await group.master())
        assert status is not None
        self._confirm = status.confirm
        self._sends = {
            key: SentMessage(
                crc32(key.encode() * 20), "sync", "SEND_OK" if key in group.acked else "UNKNOWN"
            )
            for key in group.sent
        }
        self.tally.sent, self.tally.acknowledged = len(group.sent), len(group.acked)

    async def _life(self, order: StreamOrder, group: Group) -> bool:
        """One driver from its start to its end; return whether it has read everything."""
        self.tally.drivers_started += 1
        async with streaming(order, self._directory / "stream.log") as stream:
            while sum(self.tally.kills.values()) < self._rounds:
                if not await self._settled(stream):
                    self.tally.queries_ended += 1
                    return False
                kind = KINDS[sum(self.tally.kills.values()) % len(KINDS)]
                await trio.sleep(self._chance.random())
                if not await self._kill(kind, stream, group):
                    continue
                self.tally.kills[kind] += 1
                self._said(f"round {sum(self.tally.kills.values())}: {kind} killed")
                if kind == "driver":
                    return False
            if not await self._settled(stream):
                self.tally.queries_ended += 1
                return False
            await group.rest()
            await stream.ask_to_finish()
            with trio.fail_after(SETTLED_SECONDS_MAX):
                await stream.reached("done")
            await self._note_what_is_there(group)
            group.go_on()  # what follows looks at that
            self.tally.batches = stream.news.batches
            return stream.news.state == "done"

    async def _settled(self, stream: SparkStream) -> bool:
        """Wait until batches go on; False if the query has ended."""
        wanted = stream.news.batches + BATCHES_BETWEEN
        with trio.fail_after(SETTLED_SECONDS_MAX):
            while stream.news.batches < wanted and stream.news.state != "failed":
                await trio.sleep(0.05)
        if stream.news.state == "failed":
            self._said(f"the query has ended: {stream.news.reason[:200]}")
        return stream.news.state != "failed"

    async def _kill(self, kind: str, stream: SparkStream, group: Group) -> bool:
        """Kill one; return whether there was one."""
        if kind == "master":
            await group.cluster.kill(await group.master())
            await group.make_whole()
            return True
        family = descendants(stream.pid)
        if kind == "driver":
            everything = self._chance.random() < 0.5
            victims = [pid for pid in family if everything or "java" in command_of(pid)]
            if everything:
                victims = [stream.pid, *victims]
        else:
            workers = [pid for pid in family if "-m pyspark" in command_of(pid)]
            victims = self._chance.sample(workers, 1) if workers else []
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(victims)


def descendants(pid: int) -> list[int]:
    """The processes that this one has started, and theirs."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in children.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def command_of(pid: int) -> str:
    """The command line of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def run_campaign(
    directory: Path,
    rounds: int,
    *,
    seed: int = 1,
    plant: str = "",
    said: Callable[[str], None] = print,
) -> Tally:
    """Hold a campaign; with a fault in the stream, if there is one to plant."""
    before = spark_stream.PROGRAM
    if plant:
        spark_stream.PROGRAM = ("-c", PLANTS[plant] + _RUN)  # type: ignore[misc]
    try:
        return trio.run(Campaign(directory, rounds, seed=seed, said=said).run)
    finally:
        spark_stream.PROGRAM = before  # type: ignore[misc]


def main() -> int:
    """Hold a campaign and say what came of it; 1 if anything was lost, repeated or made up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", choices=sorted(PLANTS), default="")
    parser.add_argument("--directory", type=Path)
    asked = parser.parse_args()
    directory = asked.directory or Path(tempfile.mkdtemp(prefix="stream-campaign-"))
    directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()

    def said(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - started:7.1f} s  {text}\n")
        sys.stdout.flush()

    tally = run_campaign(directory, asked.rounds, seed=asked.seed, plant=asked.plant, said=said)
    said(str(tally))
    for example in tally.summary.examples:
        said(example)
    return 1 if tally.summary.promises_broken else 0


if __name__ == "__main__":
    sys.exit(main())
