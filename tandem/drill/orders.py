"""What is sent: made-up orders, or the lines of a file.

Both answer the same three questions, so a producer does not know which it has: what next
(`take`), was it acknowledged (`settle`), and has everything been sent (`all_acknowledged`).
"""

import os
import random
import stat
from array import array
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from tandem.drill.errors import InputError, InputFault

_PRODUCTS: Final = (
    ("espresso-beans-1kg", 2190),
    ("paper-filters-100", 490),
    ("hand-grinder", 8900),
    ("gooseneck-kettle", 6450),
    ("cupping-spoon", 1290),
    ("scale-0.1g", 3790),
    ("carafe-600ml", 2890),
    ("cleaning-tablets", 990),
)
_CITIES: Final = ("Bremen", "Hangzhou", "Kraków", "Lyon", "Montréal", "Nagoya", "Porto", "Tromsø")
_SAMPLE_BYTES: Final = 65_536


class Body(msgspec.Struct, frozen=True):
    """One message body. `line` is its line in the input file, from 0; -1 for a made-up order."""

    data: bytes
    line: int = -1


class BodySource(Protocol):
    """Where producers get their bodies."""

    def take(self, producer: str, sequence: int) -> Body:
        """Return the next body for a producer."""
        ...

    def settle(self, body: Body, *, acknowledged: bool) -> None:
        """Hear what became of a body."""
        ...

    @property
    def line_count(self) -> int:
        """How many lines must be acknowledged at least once; 0 when there is no such duty."""
        ...

    @property
    def acknowledged_count(self) -> int:
        """How many of those are."""
        ...


class Orders:
    """Made-up orders as JSON. The seed, the producer and the sequence decide every byte."""

    line_count = 0
    acknowledged_count = 0

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def take(self, producer: str, sequence: int) -> Body:
        """Return the order number `sequence` of a producer; its id makes the body unique."""
        chance = random.Random(f"{self._seed}/{producer}/{sequence}")
        chosen = chance.sample(_PRODUCTS, chance.randint(1, 4))
        counts = [chance.randint(1, 5) for _ in chosen]
        order = {
            "order": f"{producer}-{sequence:07d}",
            "customer": f"c{chance.randrange(10**6):06d}",
            "city": chance.choice(_CITIES),
            "items": [
                {"sku": sku, "count": count, "cents": cents}
                for count, (sku, cents) in zip(counts, chosen, strict=True)
            ],
            "total_cents": sum(
                count * cents for count, (_, cents) in zip(counts, chosen, strict=True)
            ),
            "note": "x" * chance.choice((0, 0, 40, 200, 700)),
        }
        return Body(msgspec.json.encode(order))

    def settle(self, body: Body, *, acknowledged: bool) -> None:
        """Nothing to remember: each order is sent once."""


class FileLines:
    """The lines of a file, in their order, without line ends; empty lines are left out.

    After the last line come those that were not acknowledged, then the first again. Only the
    places of the lines are in memory. Owns its file descriptor; a context manager closes it.

    Invariant: a line that was taken and is not acknowledged is in flight or in `_again`.
    """

    def __init__(self, path: Path, *, line_bytes_max: int) -> None:
        """Open the file and look at every line of it once.

        Raises:
            InputError: not readable, not a regular file, nothing in it, not text, or a line
                is longer than a message may be.
        """
        self._path = path
        self._fd = _open_regular(path)
        try:
            self._starts, self._sizes = _find_lines(path, line_bytes_max)
        except BaseException:
            os.close(self._fd)
            raise
        self._acknowledged = bytearray(len(self._starts))
        self._again: deque[int] = deque()
        self._next = 0
        self.acknowledged_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    @property
    def line_count(self) -> int:
        """Lines that are not empty."""
        return len(self._starts)

    def take(self, producer: str, sequence: int) -> Body:
        """Return the next line; the producer does not matter.

        Raises:
            InputError: the file became shorter while the drill ran.
        """
        line = self._next_line()
        data = os.pread(self._fd, self._sizes[line], self._starts[line])
        if len(data) != self._sizes[line]:
            text = f"--input {self._path} became shorter while it was being sent"
            raise InputError(text, InputFault.SHRUNK)
        return Body(data, line)

    def _next_line(self) -> int:
        while self._next >= len(self._starts) and self._again:
            line = self._again.popleft()
            if not self._acknowledged[line]:
                return line
        line = self._next % len(self._starts)
        self._next += 1
        return line

    def settle(self, body: Body, *, acknowledged: bool) -> None:
        """Mark a line as acknowledged, or put it back in line."""
        if self._acknowledged[body.line]:
            return
        if acknowledged:
            self._acknowledged[body.line] = 1
            self.acknowledged_count += 1
        else:
            self._again.append(body.line)


def _open_regular(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"--input {path}: {error.strerror}", InputFault.UNREADABLE) from error
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        text = f"--input {path}: is {kind}; give a text or NDJSON file"
        raise InputError(text, InputFault.NOT_A_FILE)
    return fd


def _find_lines(path: Path, line_bytes_max: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return where each line that is not empty starts, and its bytes without the line end."""
    starts = array("q")
    sizes = array("q")
    position = 0
    with path.open("rb") as file:
        _refuse_binary(path, file.read(_SAMPLE_BYTES))
        file.seek(0)
        # Never a whole line at once: a minified file of gigabytes may be a single one.
        read_line = partial(file.readline, line_bytes_max + len(b"\r\n") + 1)
        for number, line in enumerate(iter(read_line, b""), start=1):
            size = len(line.rstrip(b"\r\n"))
            if size > line_bytes_max:
                raise InputError(
                    f"--input {path}: line {number} is longer than the"
                    f" {line_bytes_max:,} bytes that a message may have",
                    InputFault.LONG_LINE,
                )
            if size:
                starts.append(position)
                sizes.append(size)
            position += len(line)
    if not starts:
        raise InputError(f"--input {path}: has no line with anything in it", InputFault.EMPTY)
    return starts, sizes


def _refuse_binary(path: Path, sample: bytes) -> None:
    """A NUL byte is what `grep` and `git` go by as well; text in any 8-bit encoding has none."""
    place = sample.find(b"\0")
    if place >= 0:
        raise InputError(
            f"--input {path}: looks binary (a NUL byte at byte {place}); give text or NDJSON",
            InputFault.BINARY,
        )
