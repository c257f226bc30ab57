"""The process that a client belongs to: a fork of it has the same sockets and the same names.

Two processes that write into one socket get each other's answers, and two members of a group with
one client id both read all of its queues.
"""

import os

from tandem.client.errors import NotOpenError


class HomeProcess:
    """The process that made a client."""

    def __init__(self) -> None:
        self._process_id = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether that is this one."""
        return os.getpid() == self._process_id

    def check(self) -> None:
        """Ask whether the client may be used.

        Raises:
            NotOpenError: this is a fork.
        """
        if not self.is_here:
            raise NotOpenError(
                f"the client was made in process {self._process_id}, and {os.getpid()} is a fork"
                " of it: make a client in each process"
            )
