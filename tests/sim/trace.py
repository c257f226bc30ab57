"""What happened in a run, in order: a digest to compare runs by, and the lines to read."""

import hashlib
from collections.abc import Callable
from typing import Final

import trio

DIGEST_BYTES: Final = 16


class Trace:
    """Collects events. Every event goes into the digest; lines are kept only if asked for.

    `print_line` sees each line as it comes, so that a run that hangs or dies can be followed.
    """

    def __init__(
        self, *, keep_lines: bool = False, print_line: Callable[[str], None] | None = None
    ) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._print_line = print_line
        self._keep_lines = keep_lines
        self.lines: list[str] = []
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
        if self._keep_lines:
            self.lines.append(line)
        if self._print_line is not None:
            self._print_line(line)
