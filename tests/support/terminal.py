"""A real terminal of a given width for `tandem`: a pseudo terminal, and what was written to it."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Final

from tests.support.page_room import FORKED_TOOL

HEIGHT: Final = 50
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")


def lines_on_terminal(
    forker: Path, width: int, *arguments: str, directory: Path | None = None
) -> list[str]:
    """Run `tandem` with standard output on a terminal, and return its lines without styles.

    `forker`: the socket of a server of `tests.support.forked_tools`. What goes to standard error
    is not shown there.

    Raises:
        AssertionError: It did something to the terminal but to write lines with styles.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-I", "-S", str(FORKED_TOOL), str(forker), "tandem", *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        cwd=directory,
        env={**environment, "TERM": "xterm-256color"},
    ) as process:
        os.close(theirs)
        text = _STYLE.sub("", _all_of(ours).decode())
        process.wait()
    os.close(ours)
    assert "\x1b" not in text
    return text.replace("\r\n", "\n").splitlines()


def _all_of(descriptor: int) -> bytes:
    """What comes until nobody has the other end open."""
    read = b""
    while True:
        try:
            data = os.read(descriptor, 65_536)
        except OSError:  # as Linux says that the other end is closed
            return read
        if not data:
            return read
        read += data
