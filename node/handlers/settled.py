"""Changes of tables whose answer waits until they are final."""

from __future__ import annotations

from collections.abc import Callable

from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.tables.tables import Tables
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.response_code import ResponseCode


def answer_when_settled(
    tables: Tables,
    connection: Connection,
    command: RemotingCommand,
    deadline: float,
    body: bytes = b"",
    then: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Answer with SUCCESS once the change is final, or with what is known at `deadline`.

    `then` is given the answer of a final change, to send it when more has happened.
    """
    owed = connection.owe()

    def settled(trouble: str | None) -> None:
        if trouble is not None:
            owed.respond(command, response_to(command, ResponseCode.SYSTEM_ERROR, trouble))
        elif then is not None:
            then(succeeded)
        else:
            succeeded()

    def succeeded() -> None:
        owed.respond(command, response_to(command, body=body))

    tables.when_settled(deadline, settled)
