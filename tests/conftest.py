"""What all tests share."""

import signal

import pytest

pytest_plugins = ["tandem.testing"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore Ctrl-C and pass that on; tests of interruption must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the Spark tests together: with several workers, one of them has the one session."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
