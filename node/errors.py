"""What can go wrong in a node, by whose doing it is.

A node ends with the exit status that belongs to the error, and with one line on standard error
instead of a traceback: all of these are for the person who starts the node, not for us.
"""

from __future__ import annotations

from typing import ClassVar


class NodeError(Exception):
    """A node cannot start or cannot go on; the text says why and what to do."""

    exit_status: ClassVar[int] = 1


class ConfigError(NodeError):
    """The node cannot be started as its cluster file says.

    Attributes:
        problems: What is wrong, and the remedy, one text per problem.
        setting: What of the cluster file has to be looked at, if it is one thing; else "".
    """

    exit_status: ClassVar[int] = 2

    def __init__(self, problems: list[str], *, setting: str = "") -> None:
        self.problems = problems
        self.setting = setting
        super().__init__("\n".join(problems))


class RequestError(Exception):
    """A request is refused: becomes a response with this code and remark.

    Raised by handlers for everything a client can get wrong; the dispatcher turns it into the
    answer, so it never ends a connection.

    Attributes:
        code: The response code, one of `ResponseCode`.
        remark: What is wrong, for the person who reads the client's log.
    """

    def __init__(self, code: int, remark: str) -> None:
        self.code = code
        self.remark = remark
        super().__init__(f"{remark} (code {code})")
