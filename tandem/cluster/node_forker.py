"""A supervisor's fork server: nodes by `fork` that are the supervisor's own children.

    supervisor (trio) ----> its fork server      forked off before the supervisor runs trio
      ^     |                  | fork
      |     |                  v
      |  adopts          (ends at once)
      |     |                  | fork
      |     v                  v
      +--- waits for -------- node

A supervisor waits for its nodes, freezes them, and without it they end; for all of that they have
to be its children. So it makes itself the subreaper of what its fork server forks: the child of a
child that ends becomes the supervisor's. Source: prctl(2), PR_SET_CHILD_SUBREAPER.
"""

import contextlib
import ctypes
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from typing import IO, Final, NoReturn, Self

import msgspec
import trio

from tandem.cluster.errors import ForkServerError, ForkServerGoneError
from tandem.cluster.forking import (
    REQUEST_BYTES_MAX,
    ForkRequest,
    read_reply,
    serve,
    take_over,
)
from tandem.cluster.node_process import NodeProcess

_PR_SET_CHILD_SUBREAPER: Final = 36
"""Source: linux/prctl.h."""


class ChildProcess:
    """A child of this process that a fork server has forked."""

    def __init__(
        self, pid: int, stdin: trio.abc.SendStream, stdout: trio.abc.ReceiveStream
    ) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = stdin
        self.stdout = stdout
        self._pidfd = os.pidfd_open(pid)

    async def wait(self) -> int:
        """Wait until it has ended, and reap it."""
        if self.returncode is None:
            await trio.lowlevel.wait_readable(self._pidfd)
            # It has ended: this takes no time.
            _, status = os.waitpid(self.pid, 0)  # noqa: ASYNC222
            self.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._pidfd)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it. Nothing happens if it has been reaped."""
        if self.returncode is None:
            os.kill(self.pid, number)


class NodeForker:
    """A fork server of a supervisor, of which nodes come that are its own children."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = trio.Lock()

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[Self]:
        """Fork it off; it ends with the block, or with this process. To be called outside of trio.

        Raises:
            ForkServerError: The system refuses.
        """
        become_subreaper()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            _serve_to_the_end(theirs)
        theirs.close()
        try:
            with ours:
                yield cls(ours)
        finally:
            os.waitpid(pid, 0)

    async def open(
        self, command: Sequence[str], log: IO[bytes], environment: dict[str, str]
    ) -> NodeProcess:
        """Start what `command`, a `python -P -m MODULE ...`, would start. Not to be cancelled.

        Raises:
            ForkServerError: It could not.
        """
        _python, _p, _m, module, *arguments = command
        request = ForkRequest(
            module=module,
            arguments=arguments,
            directory=os.getcwd(),  # noqa: PTH109 - a str
            environment=environment,
            leads_session=False,
        )
        stdin, lifeline = os.pipe()
        output, stdout = os.pipe()
        try:
            pid = await self._fork(request, [stdin, stdout, log.fileno()])
        except ForkServerError:
            os.close(lifeline)
            os.close(output)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        return ChildProcess(pid, trio.lowlevel.FdStream(lifeline), trio.lowlevel.FdStream(output))

    async def _fork(self, request: ForkRequest, descriptors: list[int]) -> int:
        try:
            async with self._lock:
                socket.send_fds(self._connection, [msgspec.json.encode(request)], descriptors)
                await trio.lowlevel.wait_readable(self._connection)
                data, pidfds, _, _ = socket.recv_fds(self._connection, REQUEST_BYTES_MAX, 1)
        except OSError as error:
            raise ForkServerGoneError(f"the fork server cannot be asked: {error}") from error
        for pidfd in pidfds:
            os.close(pidfd)
        return read_reply(data).pid


def become_subreaper() -> None:
    """Adopt the children that children of ours leave.

    Raises:
        ForkServerError: The system refuses; only Linux can.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise ForkServerError(f"prctl: {os.strerror(ctypes.get_errno())}")


def _serve_to_the_end(connection: socket.socket) -> NoReturn:
    """Be the fork server of the process that has just forked us."""
    status = 1
    try:
        connection = _moved(connection)
        serve(connection, adopted=True)
        status = 0
    finally:
        os._exit(status)


def _moved(connection: socket.socket) -> socket.socket:
    """The same connection as the only descriptor but standard error."""
    keep = connection.detach()
    take_over([os.open(os.devnull, os.O_RDWR), 1, 2, keep])
    return socket.socket(fileno=3)
