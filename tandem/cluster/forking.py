"""Processes by `fork` and not by `exec`: tests start many clusters, and importing takes longest.

    caller ----- Unix socket -----> fork server             has imported what its children need
      |   ForkRequest, descriptors    |  fork
      |                               v
      +------- pid, pidfd <------   child: what `python -P -m MODULE ARGUMENTS` is

A fork server has one thread and runs no trio, so a child begins as a clean process: it takes over
the descriptors of the request as 0, 1, 2, ... and closes all others.

Nodes are to be children of their supervisor: `tandem.cluster.node_forker`.
"""

import contextlib
import fcntl
import gc
import importlib
import logging
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, Self

import msgspec

from tandem.cluster.errors import ForkServerError, ForkServerGoneError
from tandem.wire.untrusted import UnreadableError, decode_json

REQUEST_BYTES_MAX: Final = 262_144
"""Most of a request is the environment."""

DESCRIPTORS_MAX: Final = 8

_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Nothing of ours multiplies matrices; threads would be lost in each fork."""

_DESCRIPTORS_BEGIN: Final = 64
"""Above those that a child takes over, while they are put in their places."""


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One process to start. Its descriptors travel beside it."""

    module: str
    """What `python -m` would run. The fork server must not have imported that one itself."""
    arguments: list[str]
    directory: str
    environment: dict[str, str]
    leads_session: bool
    """Else it leads a process group of the fork server's session."""


class ForkReply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `error` is empty if there is a process; its pidfd travels beside it."""

    pid: int = 0
    error: str = ""


# --- the caller's side ------------------------------------------------------------------------


class ForkedProcess:
    """A child of a fork server, for a process that is not its parent. Blocks; knows no trio."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd

    def wait(self, seconds_max: float) -> bool:
        """Block until it has ended, but no longer than that; return whether it has."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(seconds_max * 1_000))

    def kill(self) -> None:
        """End it with SIGKILL. Nothing happens if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Forget it."""
        os.close(self._pidfd)


class ForkServer:
    """A fork server that is ours; it ends when we close it, or end. From one thread."""

    def __init__(self, pid: int, connection: socket.socket, wait: Callable[[], object]) -> None:
        """Take our end of its connection, and what waits until it has ended."""
        self.pid = pid
        self._connection = connection
        self._wait = wait

    @classmethod
    def started(cls, modules: Sequence[str], environment: dict[str, str]) -> Self:
        """Start it as a program. The first `fork` checks what it imports."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "tandem.cluster.fork_server", str(theirs.fileno())]
        with theirs:
            process = subprocess.Popen(
                [*command, *modules],
                env={**environment, **_ONE_THREAD},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return cls(process.pid, ours, process.wait)

    @classmethod
    def forked(cls, modules: Sequence[str], environment: dict[str, str]) -> Self:
        """Fork it off this process, which has one thread, runs no trio, and imports on beside it.

        It has what was imported until now, for nothing. What it imports then comes from the places
        of a program that has this environment.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.detach()  # closed below, and its number may be another's then
            _be_fork_server(theirs.detach(), modules, environment)
        theirs.close()
        return cls(pid, ours, lambda: os.waitpid(pid, 0))

    def fork(self, request: ForkRequest, descriptors: Sequence[int]) -> ForkedProcess:
        """Start a process.

        Raises:
            ForkServerError: It could not; the text says why.
        """
        try:
            socket.send_fds(self._connection, [msgspec.json.encode(request)], list(descriptors))
            data, received, _, _ = socket.recv_fds(self._connection, REQUEST_BYTES_MAX, 1)
        except OSError as error:
            raise ForkServerGoneError(f"the fork server cannot be asked: {error}") from error
        reply = read_reply(data)
        return ForkedProcess(reply.pid, received[0])

    def close(self) -> None:
        """End it. Its children go on."""
        self._connection.close()
        self._wait()


def _be_fork_server(
    connection: int, modules: Sequence[str], environment: dict[str, str]
) -> NoReturn:
    """Be what `python -P -m tandem.cluster.fork_server` is, in a child that is new."""
    status = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        take_over([null, null, 2, connection])
        sys.path[:] = _path_of(environment)
        os.environ.clear()
        os.environ.update({**environment, **_ONE_THREAD})
        status = run_fork_server(3, modules)
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
    finally:
        os._exit(status)


def _path_of(environment: dict[str, str]) -> list[str]:
    """Where a program with this environment would import from, run with `-P`."""
    begin = 0 if sys.flags.safe_path else 1
    given = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    wanted = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    return [*wanted, *(each for each in sys.path[begin:] if each not in {*given, *wanted})]


def read_reply(data: bytes) -> ForkReply:
    """Return a reply that says that there is a process.

    Raises:
        ForkServerError: It says that there is none, or the fork server has ended.
    """
    try:
        reply = decode_json(data, ForkReply)
    except UnreadableError as error:
        raise ForkServerGoneError("the fork server ended; its last words are on stderr") from error
    if reply.error:
        raise ForkServerError(reply.error)
    return reply


# --- the fork server --------------------------------------------------------------------------


def run_fork_server(connection_fd: int, modules: Sequence[str]) -> int:
    """Import the modules, then fork on request until the other side closes the connection."""
    for name in modules:
        importlib.import_module(name)
    with socket.socket(fileno=connection_fd) as connection:
        serve(connection, adopted=False)
    return 0


def serve(connection: socket.socket, *, adopted: bool) -> None:
    """Fork on request until the other side closes the connection.

    `adopted`: children become those of the nearest subreaper at once; otherwise they are waited
    for here.
    """
    # Objects of now are never collected: to look at them would copy their pages in every child.
    gc.collect()
    gc.freeze()
    if not adopted:
        signal.signal(signal.SIGCHLD, lambda *_: _reap())
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, DESCRIPTORS_MAX)
        if not data:
            return
        try:
            pid, pidfd = _fork(decode_json(data, ForkRequest), descriptors, adopted=adopted)
        except (OSError, UnreadableError) as error:
            connection.send(msgspec.json.encode(ForkReply(error=f"cannot fork: {error}")))
            continue
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        socket.send_fds(connection, [msgspec.json.encode(ForkReply(pid=pid))], [pidfd])
        os.close(pidfd)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _fork(request: ForkRequest, descriptors: list[int], *, adopted: bool) -> tuple[int, int]:
    if adopted:
        pid = _fork_orphan(request, descriptors)
        return pid, os.pidfd_open(pid)
    # Not reaped before there is a pidfd of it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        pid = os.fork()
        if pid == 0:
            become(request, descriptors)
        return pid, os.pidfd_open(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _fork_orphan(request: ForkRequest, descriptors: list[int]) -> int:
    """Fork a child of a child that ends at once; return its pid when it has its new parent."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        _fork_and_end(request, descriptors, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as news:
        text = os.read(news.fileno(), 32)
    os.waitpid(between, 0)
    if not text:
        raise OSError("no process for it")
    return int(text)


def _fork_and_end(request: ForkRequest, descriptors: list[int], news: int) -> NoReturn:
    try:
        pid = os.fork()
        if pid == 0:
            become(request, descriptors)
        os.write(news, str(pid).encode())
    finally:
        os._exit(0)


def become(request: ForkRequest, descriptors: Sequence[int]) -> NoReturn:
    """Be another process, in a child that is new: run what the request names, and end."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if request.leads_session:
            os.setsid()
        else:
            os.setpgid(0, 0)
        take_over(descriptors)
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.directory)
        sys.argv[1:] = request.arguments
        # Imported beforehand it would be there twice, of which `runpy` warns in the node's log.
        sys.modules.pop(f"{request.module}.__main__", None)
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error:
        status = _status_of(error)
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
    finally:
        logging.shutdown()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _status_of(error: SystemExit) -> int:
    """The exit status, as the interpreter has it: of anything but a number 1, and it is printed."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    sys.stderr.write(f"{error.code}\n")
    return 1


def take_over(descriptors: Sequence[int]) -> None:
    """Have these as descriptors 0, 1, 2, ... and no others."""
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, _DESCRIPTORS_BEGIN) for each in descriptors]
    for place, descriptor in enumerate(high):
        os.dup2(descriptor, place)
    os.closerange(len(high), max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208
