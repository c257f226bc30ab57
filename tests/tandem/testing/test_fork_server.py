import os
import subprocess
import sys

import pytest

from tandem.testing import fork_server
from tandem.testing.fork_server import OwnForkServer
from tests.support.processes import ENVIRONMENT


def test_a_child_of_this_process_starts_a_server_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = OwnForkServer()
    made: list[int] = []

    class Fake:
        @classmethod
        def started(cls, *_: object) -> "Fake":
            made.append(os.getpid())
            return cls()

        @classmethod
        def forked(cls, *_: object) -> "Fake":
            made.append(1)
            return cls()

        def close(self) -> None:
            made.append(-os.getpid())

    monkeypatch.setattr(fork_server, "ForkServer", Fake)
    assert server.get() is server.get()
    monkeypatch.setattr(os, "getpid", lambda: 7)
    server.close()
    server.get()
    server.close()
    server.fork_off()
    server.get()
    server.close()
    monkeypatch.undo()
    assert made == [os.getpid(), 7, -7, 1, -7]


@pytest.mark.slow
def test_it_is_started_before_much_is_imported() -> None:
    script = (
        "import sys, tandem.testing.fork_server;"
        "sys.exit(' '.join({'trio', 'anyio', 'numpy', 'tandem.client'} & set(sys.modules)) or 0)"
    )
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
