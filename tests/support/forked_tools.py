"""`tandem` and `python FILE` for pages, by fork: a page runs dozens, and importing takes longest.

    python -P -m tests.support.forked_tools SOCKET     serves until its standard input ends
    python -I -S forked_tool.py SOCKET TOOL ...        the tool: as if it were that program

The tool hands its descriptors, directory, environment and process group to a child of the server,
which has imported what programs need, and ends with the child's status.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_MODULES: Final = (
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "asyncio",
    "tandem.cli.command_line",
    "tandem.client",
    "tandem.cluster.control",
    "tandem.cluster.spec",
    "tandem.log",
    "trio",
)

_REQUEST_BYTES_MAX: Final = 262_144


class Server:
    """Forks one child for each connection, and answers it with the child's exit status."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._running: dict[int, socket.socket] = {}

    def serve(self) -> int:
        """Serve until standard input ends; in a child, return what the program's status is."""
        news, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        gc.collect()
        gc.freeze()
        while True:
            waited: list[int | socket.socket] = [0, news, self._listener]
            ready = select.select(waited, [], [])[0]
            if 0 in ready:
                return 0
            if news in ready:
                os.read(news, 4_096)
                self._reap()
            if self._listener in ready and (status := self._fork()) is not None:
                return status

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with self._running.pop(ended[0]) as connection, suppress(OSError):
                    connection.send(str(os.waitstatus_to_exitcode(ended[1])).encode())

    def _fork(self) -> int | None:
        connection, _ = self._listener.accept()
        data, descriptors, _, _ = socket.recv_fds(connection, _REQUEST_BYTES_MAX, 3)
        pid = os.fork()
        if pid == 0:
            for opened in (self._listener, connection, *self._running.values()):
                opened.detach()  # closed with all others
            return _run(json.loads(data), descriptors)
        self._running[pid] = connection
        for each in descriptors:
            os.close(each)
        return None


def _run(request: dict[str, object], descriptors: list[int]) -> int:
    """In a child: be the program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(OSError):  # who asked may have been killed meanwhile
        os.setpgid(0, int(str(request["group"])))
    for place, descriptor in enumerate(descriptors):
        os.dup2(descriptor, place)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208
    # As the interpreter makes them, which has looked at what the descriptors were before.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the whole process
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["directory"]))
    arguments = request["arguments"]
    assert isinstance(arguments, list)
    tool, *sys.argv[:] = arguments
    if tool == "tandem":
        sys.argv.insert(0, "tandem")
        importlib.import_module("tandem.cli").main()
    else:
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


def main() -> int:
    """Listen at the socket that is named, when there is everything to fork from."""
    for name in _MODULES:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        # It has its name when it listens: who finds it may connect at once.
        listener.bind(f"{sys.argv[1]}.new")
        listener.listen()
        Path(f"{sys.argv[1]}.new").rename(sys.argv[1])
        return Server(listener).serve()


if __name__ == "__main__":
    sys.exit(main())
