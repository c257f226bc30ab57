"""The machine that the present task runs on, where that is not this one: a simulated one.

A client that is made and opened in such a task gets its name and its connections there. What was
given to a client itself (`open_stream`, an identity) comes first. Tasks have the machine of the
task that started them.
"""

from contextvars import ContextVar
from typing import Final, Protocol

from tandem.client.event_loop import ByteStream
from tandem.client.identity import ClientIdentity, local_identity


class ClientMachine(Protocol):
    """What a client needs of a machine."""

    def new_identity(self) -> ClientIdentity:
        """Return who one more client on this machine is."""

    async def open_stream(self, host: str, port: int, /) -> ByteStream:
        """Open a connection; raises what `TcpStream` and its opener raise."""


machine_of_task: Final[ContextVar[ClientMachine | None]] = ContextVar(
    "machine_of_task", default=None
)
"""None: this one."""


def new_identity(name_server: str) -> ClientIdentity:
    """Return who a new client of this task is; `name_server` is one that it will ask."""
    machine = machine_of_task.get()
    return local_identity(name_server) if machine is None else machine.new_identity()
