"""`python -P -m tandem.testing.sweeper_process`: see `tandem.testing.sweeper`.

Standard input is a pipe: a directory, and its end when the process that has it is gone.
"""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from tandem.cluster.supervisor_lock import supervisor_of

SWEEP_SECONDS_MAX: Final = 120.0
"""Processes of a cluster end milliseconds after their supervisor, and that one within seconds."""

SETTLED_SECONDS: Final = 1.0
"""A process that was just being started may still make its directory."""

POLL_SECONDS: Final = 0.02


def main() -> int:
    """Wait for the end of standard input; then remove the directory that was named there."""
    with os.fdopen(0, "rb") as news:
        name = news.read()
    if name:
        sweep(Path(os.fsdecode(name)))
    return 0


def sweep(directory: Path) -> None:
    """Remove the directory of a cluster whose processes are ending, and see that it stays away."""
    if not directory.exists():
        return  # in an orderly way
    deadline = time.monotonic() + SWEEP_SECONDS_MAX
    gone_since = None
    while time.monotonic() < deadline:
        if not directory.exists():
            gone_since = gone_since or time.monotonic()
            if time.monotonic() - gone_since > SETTLED_SECONDS:
                return
        else:
            gone_since = None
            if supervisor_of(directory / "data") is None:
                # A process that is ending may write meanwhile: what is left is for the next time.
                shutil.rmtree(directory, ignore_errors=True)
        time.sleep(POLL_SECONDS)  # noqa: TID251 - a process of its own, not a node


if __name__ == "__main__":
    sys.exit(main())
