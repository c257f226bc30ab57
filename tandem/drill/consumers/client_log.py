"""Where the clients of a drill say what happened to them: beside the logs of the nodes.

Members of groups log each fault that they survive. On a terminal that would be in the way of what
the drill itself says.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLIENTS = "tandem.client"


@contextmanager
def client_log(path: Path) -> Iterator[None]:
    """Let the clients of this process log to a file while the block runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger(CLIENTS)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(handler)
        handler.close()
