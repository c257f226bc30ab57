"""What all tests share."""

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.lanes import TwoLanes

if TYPE_CHECKING:
    from xdist.remote import Producer

pytest_plugins = ["tandem.testing"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore Ctrl-C and pass that on; tests of interruption must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """Give every test the same terminal, whatever this one is; pytest has seen the real one."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        os.environ.pop(name, None)
    os.environ["TERM"] = "xterm-256color"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> TwoLanes | None:
    """Keep tests of a group together, and have two kinds of workers, with `--dist loadgroup`."""
    return TwoLanes(config, log) if config.getoption("dist") == "loadgroup" else None
