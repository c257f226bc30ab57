"""What a test may compare of a log: which module wrote a line, how bad it is, and about what.

The words of a line are for people, and may be made better without a test. A line is known by its
module and level, and its arguments name what it is about.
"""

import logging

import pytest


def logged(
    caplog: pytest.LogCaptureFixture, module: str, level: int = logging.WARNING
) -> list[tuple[object, ...]]:
    """Return the arguments of each line that `module` has written at this level or a worse one."""
    found: list[tuple[object, ...]] = []
    for record in caplog.records:
        if record.name == module and record.levelno >= level:
            arguments = record.args or ()
            found.append(arguments if isinstance(arguments, tuple) else (arguments,))
    return found
