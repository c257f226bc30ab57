import gc
import os
import select
import socket
import struct
import subprocess
import sys
import types
import weakref
from pathlib import Path

import pytest

from tandem.spark.quiet_daemon import HUNG_UP, quietly, settled
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS

_INT = struct.Struct(">i")

PLANNER = "pyspark_planner"
"""What Spark has planned by, as far as it matters: one round, and then nobody asks any more."""

PLANNER_TEXT = """
import sys

def main(infile, outfile):
    import {imports}
    try:
        asked = infile.read(4)
    except OSError:
        asked = b""
    outfile.write(b"done" if asked else b"nobody is there")
    if not asked:
        sys.exit(-1)
"""


def test_a_worker_whose_jvm_has_hung_up_is_done_and_others_fail_as_before() -> None:
    def serve(error: type[Exception] | None) -> int:
        if error is not None:
            raise error
        return 0

    serves = quietly(serve)
    assert serves(None) == 0
    assert serves(BrokenPipeError) == HUNG_UP
    assert serves(ConnectionResetError) == HUNG_UP
    with pytest.raises(FileNotFoundError):
        serves(FileNotFoundError)


class Cycle:
    """Garbage that counting references does not find."""

    def __init__(self) -> None:
        self.itself = self


def test_after_a_task_that_imports_what_is_there_is_left_out_of_searches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(len(sys.modules)))

    def serve(imports: str | None) -> int:
        if imports is not None:
            monkeypatch.setitem(sys.modules, imports, types.ModuleType(imports))
        return 7

    serves = settled(serve)
    assert [serves(name) for name in (None, None, "made_up", None)] == [7] * 4
    assert len(frozen) == 2
    assert frozen[1] == frozen[0] + 1


def test_what_later_tasks_leave_is_still_found() -> None:
    left = []

    def serve() -> int:
        left.append(weakref.ref(Cycle()))
        return 0

    serves = settled(serve)
    try:
        serves()
        serves()
        gc.collect()
    finally:
        gc.unfreeze()
    assert [each() for each in left] == [None, None]


def test_what_a_task_has_kept_and_a_later_one_drops_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[Cycle] = []

    def serve(imports: str) -> int:
        kept[:] = [Cycle()]
        monkeypatch.setitem(sys.modules, imports, types.ModuleType(imports))
        return 0

    serves = settled(serve)
    try:
        serves("made_up")
        first = weakref.ref(kept[0])
        serves("made_up_too")
    finally:
        gc.unfreeze()
    assert first() is None


def said_when_hung_up(module: str, worker_module: str = "pyspark.worker", path: str = "") -> str:
    """What a daemon prints when a connection is closed that a worker would write to."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (path, str(ROOT)))),
        "SPARK_REUSE_WORKER": "1",
        "PYTHON_WORKER_FACTORY_SECRET": "secret",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", module, worker_module],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        (port,) = _INT.unpack(daemon.stdout.read(_INT.size))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(_INT.pack(len(b"secret")) + b"secret")
            (worker,) = _INT.unpack(connection.recv(_INT.size, socket.MSG_WAITALL))
            ends = os.pidfd_open(worker)
            if worker_module == PLANNER:
                connection.sendall(b"plan")
                assert connection.recv(10, socket.MSG_WAITALL) == _INT.pack(2) + b"okdone"
            # As a JVM that has what it wants: no more is read, and nothing is waited for.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert select.select([ends], [], [], PATIENCE_SECONDS)[0]
        os.close(ends)
        daemon.stdin.close()
        return daemon.stderr.read().decode()


@pytest.mark.slow
def test_a_daemon_says_nothing_of_a_jvm_that_has_hung_up() -> None:
    assert said_when_hung_up("tandem.spark.quiet_daemon") == ""
    assert "Error" in said_when_hung_up("pyspark.daemon")


@pytest.mark.slow
def test_a_planner_that_has_planned_something_of_ours_is_quiet_from_then_on(tmp_path: Path) -> None:
    module = tmp_path / f"{PLANNER}.py"
    for imports, is_quiet in (("tandem.spark.source", True), ("json", False)):
        module.write_text(PLANNER_TEXT.format(imports=imports))
        said = said_when_hung_up("pyspark.daemon", PLANNER, str(tmp_path))
        assert ("BrokenPipeError" in said or "ConnectionResetError" in said) is not is_quiet, said
