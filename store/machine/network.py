"""What replication and the node need of a network, and nothing more.

Two implementations: real sockets in the node, and the simulated network of the tests. Both pass
the same contract checks. No `OSError` and no trio error except `trio.Cancelled` leaves them:

- `ConnectionLost`: the wire broke, or a connection could not be opened;
- `ClosedHere`, which is one: it was closed on this side;
- `AddressInUseError`: the port of a listener is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from store.machine.errors import AddressInUseError, ClosedHere, ConnectionLost
from tandem.wire.message import Host

if TYPE_CHECKING:
    from tandem.wire.read_together import ReadTogether

__all__ = [
    "AddressInUseError",
    "ClosedHere",
    "ConnectionLost",
    "Crowd",
    "Listener",
    "Member",
    "Network",
    "ReceivesSome",
    "Stream",
    "Take",
    "TakeRest",
    "Taken",
]

Taken: TypeAlias = "bool | Callable[[], bool]"
"""Whether more is wanted; or what says so once all that came at the same time was read."""

Take: TypeAlias = "Callable[[bytes], Taken]"
"""Takes what has come over a stream. It never waits."""

TakeRest: TypeAlias = "Callable[[bytes], bool]"
"""Takes what a crowd has left of what has come, or nothing; says whether more is wanted."""


class Member(Protocol):
    """One of a crowd: streams of which is taken together what has come over them at once.

    Attributes:
        joins: Whether it does so now.
    """

    joins: bool

    @property
    def crowd(self) -> Crowd | None:
        """All of them, or None while it is alone."""


class Crowd(Protocol):
    """Takes what has come over several streams."""

    def take(self, members: list[Any], came: ReadTogether) -> list[int]:
        """Take from the start of what each has sent, or not; the rest comes to their `take_rest`.

        Return who is to be asked also if nothing is left, for they may want no more.
        """


class Stream(Protocol):
    """One connected byte stream. One task receives, one task sends."""

    @property
    def peer(self) -> Host:
        """Address of the other end as this side sees it."""

    @property
    def peer_name(self) -> str | None:
        """The name in the certificate that the other end has shown; None if it has shown none."""

    @property
    def has_tls(self) -> bool:
        """Whether what is sent cannot be read on the way."""

    @property
    def plain_fd(self) -> int:
        """The socket that takes what is sent as it is; -1: there is none, or it was closed.

        Good only until something else happens: the number may then be another one's.
        """

    async def receive_some(self, bytes_max: int) -> bytes:
        """Return 1 to `bytes_max` bytes, or b"" when the peer has ended the stream.

        Cancelling it loses no bytes.

        Raises:
            ConnectionLost: the stream broke, or was closed on this side.
        """

    async def receive_while(self, bytes_max: int, take: Take) -> bool:
        """Give `take` what comes, up to `bytes_max` bytes at a time, as long as it returns True.

        `take` may be called while no task runs. It never waits; what it raises is raised here. It
        may return a function, which is called when all streams with something at that moment were
        read, and before anything else is taken: what that one returns or raises counts.
        Return True if `take` did not want more, False when the peer has ended the stream.
        Cancelling it loses no bytes.

        Raises:
            ConnectionLost: the stream broke, or was closed on this side, if by `take` itself.
        """

    async def receive_together(
        self, bytes_max: int, take: Take, member: Member, take_rest: TakeRest
    ) -> bool:
        """The same, but what has come beside others of the same crowd is taken by the crowd.

        To `take` comes what came alone, or while the member does not join; to `take_rest` what its
        crowd has left.
        """

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Hand over as many bytes as fit without waiting; return how many, 0 when none fit.

        `data` is not kept: what was taken has been copied when this returns. If a part of it was
        taken, the rest is what is sent next.

        Raises:
            ConnectionLost: the stream broke, or was closed on this side.
        """

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, waiting while the peer does not take it.

        If it is cancelled an unknown part has been sent: the stream is finished, close it.

        Raises:
            ConnectionLost: the stream broke, or was closed on this side.
        """

    async def aclose(self) -> None:
        """Close and yield. Harmless when closed already; closes even if cancelled."""

    def close_nowait(self) -> None:
        """Close without yielding. A task waiting on the stream gets `ConnectionLost`."""


class ReceivesSome:
    """A stream that has `receive_some`, and all other ways to receive by it, and has no TLS."""

    @property
    def peer_name(self) -> str | None:
        """See `Stream.peer_name`."""
        return None

    @property
    def has_tls(self) -> bool:
        """See `Stream.has_tls`."""
        return False

    @property
    def plain_fd(self) -> int:
        """See `Stream.plain_fd`."""
        return -1

    async def receive_some(self, bytes_max: int) -> bytes:
        """See `Stream.receive_some`."""
        raise NotImplementedError

    async def receive_together(
        self, bytes_max: int, take: Take, member: Member, take_rest: TakeRest
    ) -> bool:
        """See `Stream.receive_together`; here all comes alone."""
        return await self.receive_while(bytes_max, take)

    async def receive_while(self, bytes_max: int, take: Take) -> bool:
        """See `Stream.receive_while`."""
        while data := await self.receive_some(bytes_max):
            taken = take(data)
            if not (taken if isinstance(taken, bool) else taken()):
                return True
        return False


class Listener(Protocol):
    """A listening port."""

    @property
    def port(self) -> int:
        """The port bound, also when 0 was asked for."""

    async def accept(self) -> Stream:
        """Wait for the next connection.

        Passing trouble (a connection that died in the queue, no file descriptors left) is
        waited out inside.

        Raises:
            ConnectionLost: the listener was closed.
        """

    async def aclose(self) -> None:
        """Stop listening. Accepted streams live on. Harmless when closed already."""


class Network(Protocol):
    """Opens streams and listeners."""

    async def connect(self, host: str, port: int, *, source: str | None) -> Stream:
        """Dial `host`:`port`, from the local address `source` if given.

        The caller owns the time limit. If it is cancelled, nothing stays open.

        Raises:
            ConnectionLost: refused, unreachable, or `source` is not an address of this machine.
        """

    async def listen(self, host: str, port: int) -> Listener:
        """Listen on one address.

        Raises:
            AddressInUseError: the port is taken.
            ConnectionLost: the address cannot be bound for another reason.
        """
