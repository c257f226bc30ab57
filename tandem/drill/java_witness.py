"""RocketMQ's own consumer beside a drill: a process that says what it was given, as it comes.

It begins before the load, in a group of its own, and ends when it was given what our consumers have
read. Its process ends with ours: its standard input is a pipe from here.
"""

import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from tandem.drill.ended_process import end_process
from tandem.drill.errors import WitnessStartError
from tandem.drill.scenario import Seen, Stage
from tandem.drill.stream_audit import Content, Place
from tandem.wire.crc import CRC_MASK

SOURCE: Final = Path(__file__).with_name("Witness.java")
LEDGER_NAME: Final = "witness.ndjson"
GROUP_SUFFIX: Final = "-witness-java"
READY: Final = b"ready"

READY_SECONDS_MAX: Final = 180.0
"""Java compiles the program and starts: 2 s, and a minute on a busy machine."""

FINISH_SECONDS_MAX: Final = 180.0
"""RocketMQ's consumer may stand still for 20 to 30 s, and after a failover once more."""

END_SECONDS_MAX: Final = 15.0
_LINE_BYTES_MAX: Final = 1 << 16


class WitnessJava(msgspec.Struct, frozen=True, kw_only=True):
    """The Java that consumes, and the client of RocketMQ in it."""

    java: str
    class_path: str
    version: str

    @property
    def client(self) -> str:
        """What it is, in words."""
        return f"RocketMQ's client {self.version}"


class Delivery(msgspec.Struct, frozen=True):
    """One message as the witness was given it."""

    queue_id: int
    queue_offset: int
    body_crc32: int
    reconsume_times: int
    keys: str

    @property
    def place(self) -> Place:
        """Where it is."""
        return self.queue_id, self.queue_offset

    @property
    def content(self) -> Content:
        """What it is."""
        return self.keys, self.body_crc32


def delivery_of(line: bytes) -> Delivery | None:
    """Return what a line says; None if it is not of a message."""
    parts = line.decode(errors="replace").split(" ", 4)
    if len(parts) != len(Delivery.__struct_fields__) or not all(map(str.isdecimal, parts[:4])):
        return None
    queue_id, queue_offset, crc, times = map(int, parts[:4])
    return Delivery(queue_id, queue_offset, crc & CRC_MASK, times, parts[4].rstrip("\r"))


class Witness:
    """What the process has said so far."""

    def __init__(self, process: trio.Process, ledger: Path) -> None:
        self.deliveries: list[Delivery] = []
        self.places: set[Place] = set()
        self.is_ready = trio.Event()
        self.has_ended = False
        self._process = process
        self._ledger = ledger

    async def listen(self) -> None:
        """Take what it says until it ends."""
        assert self._process.stdout is not None
        rest = b""
        with self._ledger.open("ab") as ledger:
            async for data in self._process.stdout:
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[:_LINE_BYTES_MAX]
                for line in lines:
                    if line.strip() == READY:
                        self.is_ready.set()
                    elif (delivery := delivery_of(line)) is not None:
                        self.deliveries.append(delivery)
                        self.places.add(delivery.place)
                        ledger.write(msgspec.json.encode(delivery) + b"\n")
        self.has_ended = True
        self.is_ready.set()

    def seen(self, ours: Mapping[Place, Content]) -> Seen:
        """Whether it was given all that our consumers have read."""
        left = len(ours.keys() - self.places)
        ended = "; its process has ended" if self.has_ended else ""
        words = f"{left:,} of {len(ours):,} messages to go" if left else f"{len(ours):,} messages"
        return Seen(not left, f"{words}{ended}")


@asynccontextmanager
async def witnessing(
    java: WitnessJava, name_servers: Sequence[str], topic: str, out: Path
) -> AsyncIterator[Witness]:
    """Have a witness that consumes; what Java says goes to a log.

    Raises:
        WitnessStartError: in a group; it could not be started.
    """
    log = out / "data" / "logs" / "witness-java.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    scratch = out / "data" / "witness"
    command = [
        *(java.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"-Duser.home={scratch}", "-Drocketmq.client.logUseSlf4j=true"),
        *("-cp", java.class_path, str(SOURCE), ";".join(name_servers), topic),
        topic + GROUP_SUFFIX,
    ]
    async with trio.open_nursery() as nursery:
        with log.open("ab") as errors:
            process = await trio.lowlevel.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        witness = Witness(process, out / LEDGER_NAME)
        try:
            nursery.start_soon(witness.listen)
            with trio.move_on_after(READY_SECONDS_MAX):
                await witness.is_ready.wait()
            if witness.has_ended or not witness.is_ready.is_set():
                raise WitnessStartError(
                    f"Java's consumer did not start: {_last_line(log)} (its words: {log}); it needs"
                    " a JDK, which compiles it, and the client's jars with all they need"
                )
            yield witness
        finally:
            nursery.cancel_scope.cancel()
            await end_process(process, END_SECONDS_MAX)


async def finish(witness: Witness, stage: Stage, ours: Mapping[Place, Content]) -> None:
    """Expect that the witness is given all that our consumers have read.

    Raises:
        UnmetError: it was not, in time.
    """
    await stage.expect(
        "Java's consumer was given what ours has read",
        lambda: witness.seen(ours),
        FINISH_SECONDS_MAX,
    )


def _last_line(log: Path) -> str:
    """The line that says most: the first with an error, or the last."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "Exception" in line]
    return (errors[:1] or lines[-1:] or ["it said nothing"])[0][:300]
