"""What all tests share."""

import gc
import inspect
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tandem.process_log import ProcessLog
from tandem.testing import cluster_files
from tandem.wire import native
from tests.support.lanes import TwoLanes, is_level_quick, put_in_order
from tests.support.levels import mark_thorough
from tests.support.loopback import unclaimed_network

if TYPE_CHECKING:
    from xdist.remote import Producer

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore Ctrl-C and pass that on; tests of interruption must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)


if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # So does nohup with the signal of a terminal that is closed.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# No deadlines: a test is to be as green on a busy machine. And the same examples each time, but for
# the long tests: what nobody has thought of is to be found by who looks for it.
settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True)
settings.register_profile("ordinary", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=300, deadline=None, derandomize=False)


def pytest_configure(config: pytest.Config) -> None:
    """Try as many examples of what hypothesis makes up as the level has time for."""
    level = config.option.markexpr
    quick = "quick" if is_level_quick(config) else "ordinary"
    settings.load_profile("long" if level in ("", "long") else quick)


def pytest_sessionstart() -> None:
    """Give every test the same terminal, whatever this one is; pytest has seen the real one."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        os.environ.pop(name, None)
    os.environ["TERM"] = "xterm-256color"


@pytest.fixture(scope="session", autouse=True)
def _addresses_of_this_worker() -> Iterator[None]:
    """Give cluster files addresses that no other worker has; by themselves they draw lots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_files, "random_network", unclaimed_network)
        yield


@pytest.fixture(scope="module", params=["C", "Python"])
def _in_c_and_python(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the tests of a module with the loops in C, and then without them."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Python":
            patch.setattr(native, "loops", None)
        elif native.loops is None:
            pytest.skip("the loops in C were not compiled here: see tandem/wire/native.py")
        yield


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Take back what the main function of a process does to logging: it begins once, and stays."""
    root, hook, last = logging.root, sys.excepthook, logging.lastResort
    level, disabled = root.level, root.manager.disable
    yield
    root.setLevel(level)
    root.manager.disable = disabled
    sys.excepthook, logging.lastResort = hook, last
    for handler in [each for each in root.handlers if isinstance(each, ProcessLog)]:
        root.removeHandler(handler)


WAITING_SECONDS_MAX = 1200
"""For tests that wait for other processes. On a busy machine a JVM alone takes minutes to start,
and a test that is interrupted in the middle of a call leaves Spark unusable for the others."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say which are thorough, before some are left out; give processes more time; put in order."""
    mark_thorough(items)
    for item in items:
        waits = item.get_closest_marker("spark") or item.get_closest_marker("fault")
        if waits and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(WAITING_SECONDS_MAX))
    if hasattr(config, "workerinput"):
        put_in_order(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a test that would run on real time without knowing it."""
    if _takes_real_time_unawares(item):
        text = "it runs on real time: pytest-trio takes a clock from a test's own arguments only"
        pytest.fail(f"{text}; give it the argument autojump_clock", pytrace=False)


def _takes_real_time_unawares(item: pytest.Item) -> bool:
    """Whether only a fixture of the test asks for virtual time, which is then not had."""
    if not isinstance(item, pytest.Function) or "autojump_clock" not in item.fixturenames:
        return False
    test = inspect.unwrap(item.obj)
    return (
        inspect.iscoroutinefunction(test)
        and "autojump_clock" not in inspect.signature(test).parameters
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> TwoLanes | None:
    """Keep tests of a group together, and have two kinds of workers, with `--dist loadgroup`."""
    return TwoLanes(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage in what is collected, now or later: it is much, and all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.collect()  # How seldom it looks at everything depends on what the last look has left.
        gc.enable()
