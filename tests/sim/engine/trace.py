"""What happened in a run, in order: a digest to compare runs by, and lines to read."""

import hashlib
from collections.abc import Callable
from typing import Final, TypeAlias

import trio

DIGEST_BYTES: Final = 16

PrintLine: TypeAlias = Callable[[str], None]


class Trace:
    """Collects events. Every event goes into the digest.

    `print_line` sees each line as it comes, so that a run that hangs or dies can be followed.
    """

    def __init__(self, print_line: PrintLine | None = None) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._print_line = print_line
        self.event_count = 0

    @property
    def digest(self) -> str:
        """Equal for two runs if, and as far as anybody can tell only if, they were the same."""
        return self._hash.hexdigest()

    def note(self, source: str, event: str) -> None:
        """Add one event of `source`: a node, a client, `net`, `disk`, `fault`."""
        line = f"{trio.current_time():12.6f} {source:<12} {event}"
        self._hash.update(line.encode())
        self.event_count += 1
        if self._print_line is not None:
            self._print_line(line)
