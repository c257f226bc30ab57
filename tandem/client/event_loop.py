"""What the client needs of an event loop beyond what anyio offers, for trio and for asyncio.

anyio has task groups, cancel scopes and events for both. It has nothing as small as a task that
sleeps until a callback hands it a value, which is what a request is: the *parked* task here. And
a task group belongs to the task that opens it, which under asyncio is not the user's: fixtures and
frameworks open a client in one task and close it in another.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from anyio.abc import TaskGroup

from tandem.client.errors import NotOpenError


class ByteStream(Protocol):
    """What the client needs of a connection. `TcpStream` is one.

    One that broke, or was closed on this side, raises one of the loop's `stream_errors`.
    """

    async def receive_some(self, max_bytes: int, /) -> bytes | bytearray:
        """Return 1 to `max_bytes` bytes, or nothing at the end."""

    async def send_all(self, data: bytes, /) -> None:
        """Send all of `data`."""

    async def aclose(self) -> None:
        """Close; even if cancelled."""


class Parked(Protocol):
    """The present task, asleep until `wake`. One wait, one wake."""

    def wake(self, value: Any) -> None:  # noqa: ANN401  whatever the task waits for
        """Let `wait` return `value`."""

    def wait(self, forget: Callable[[], object]) -> Awaitable[Any]:
        """Return what `wake` was called with. If it is cancelled, `forget` is called first."""


class Background(Protocol):
    """The tasks of one client, from `open` to `close`."""

    async def open(self) -> TaskGroup:
        """Return where the client's tasks are started."""

    async def close(self) -> None:
        """Cancel all of them and wait for their end.

        Raises:
            BaseExceptionGroup: what went wrong in one of them.
        """


class EventLoop(Protocol):
    """The event loop that runs the present task."""

    @property
    def current_time(self) -> Callable[[], float]:
        """The loop's clock, in seconds."""

    @property
    def stream_errors(self) -> tuple[type[Exception], ...]:
        """What a stream raises that broke, or was closed on this side."""

    @property
    def parked(self) -> Callable[[], Parked]:
        """Returns the present task, about to sleep."""

    def background(self) -> Background:
        """Return a place for a client's tasks, not yet open."""

    async def open_tcp(self, host: str, port: int) -> ByteStream:
        """Connect to the first address of `host` that answers.

        Raises:
            OSError: none does.
        """


class LoopClock:
    """The clock of an event loop that is known only when the client is opened."""

    __slots__ = ("read",)

    def __init__(self) -> None:
        self.read: Callable[[], float] = _not_open

    def __call__(self) -> float:
        """Return the loop's time, in seconds."""
        return self.read()


def _not_open() -> float:
    raise not_open()


def not_open() -> NotOpenError:
    """Return what a client says that is used before it is open, or after it was closed."""
    return NotOpenError('the client is not open; use it with "async with"')
