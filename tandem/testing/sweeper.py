"""Removes the directory of a cluster when this process has ended, however it ended.

    this process ----- pipe: the directory ----> tandem.testing.sweeper_process

It leads a session of its own, so that it is not killed with the process group of this one.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tandem.cluster.forking import ForkRequest
from tandem.cluster.spec import node_environment
from tandem.testing.fork_server import fork_server

END_SECONDS_MAX: Final = 10.0


class Sweeper:
    """For one directory. At the end of the block it is done; it waits for nothing that is gone."""

    def __init__(self) -> None:
        request = ForkRequest(
            module="tandem.testing.sweeper_process",
            arguments=[],
            directory="/",
            environment=node_environment(),
            leads_session=True,
        )
        reader, self._pipe = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            # Not our standard error: who reads that to its end does not wait for a sweeper.
            self._process = fork_server().fork(request, [reader, null, null])
        finally:
            os.close(reader)
            os.close(null)

    def watch(self, directory: Path) -> None:
        """Say which directory is to go. Once."""
        os.write(self._pipe, os.fsencode(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._pipe)
        self._process.wait(END_SECONDS_MAX)
        self._process.close()
