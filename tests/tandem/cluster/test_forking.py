import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tandem.cluster.errors import ForkServerError, ForkServerGoneError
from tandem.cluster.forking import ForkedProcess, ForkRequest, ForkServer
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.processes import ENVIRONMENT, all_gone

pytestmark = [pytest.mark.fault, pytest.mark.slow]

PROGRAM = "tests.tandem.cluster.fake_program"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(["json"], ENVIRONMENT)
    yield server
    server.close()


def request(directory: Path, *arguments: str, leads_session: bool = True) -> ForkRequest:
    return ForkRequest(
        module=PROGRAM,
        arguments=list(arguments),
        directory=str(directory),
        environment={"ONLY": "this"},
        leads_session=leads_session,
    )


def run(server: ForkServer, wanted: ForkRequest) -> tuple[ForkedProcess, str]:
    """Run to its end; return the process and what it wrote."""
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    process = server.fork(wanted, [null, writer, writer])
    os.close(writer)
    os.close(null)
    with os.fdopen(reader) as output:
        text = output.read()
    assert process.wait(PATIENCE_SECONDS)
    process.close()
    return process, text


def test_a_child_begins_as_a_program_does(server: ForkServer, tmp_path: Path) -> None:
    process, text = run(server, request(tmp_path, "report", "--more"))
    assert json.loads(text) == {
        "arguments": ["report", "--more"],
        "descriptors": [0, 1, 2],
        "directory": str(tmp_path),
        "environment": {"ONLY": "this"},
        "leads": [True, True],
    }
    assert process.pid != os.getpid()


def test_a_child_may_lead_a_group_and_not_a_session(server: ForkServer, tmp_path: Path) -> None:
    _, text = run(server, request(tmp_path, "report", leads_session=False))
    assert json.loads(text)["leads"] == [False, True]


def test_an_error_of_a_child_is_its_own(server: ForkServer, tmp_path: Path) -> None:
    _, text = run(server, request(tmp_path, "fail"))
    assert text.startswith("Traceback")
    assert text.endswith("ZeroDivisionError: on purpose\n")
    _, text = run(server, request(tmp_path, "refuse"))
    assert text == "words for a person\n"
    missing = msgspec.structs.replace(request(tmp_path), module="no_such_module")
    _, text = run(server, missing)
    assert "No module named no_such_module" in text


def test_a_child_that_is_killed_has_ended_and_is_reaped(server: ForkServer, tmp_path: Path) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    process = server.fork(request(tmp_path, "sleep"), [null, null, null])
    os.close(null)
    assert not process.wait(0.0)
    process.kill()
    assert process.wait(PATIENCE_SECONDS)
    wait_until(lambda: not Path(f"/proc/{process.pid}").exists())
    process.kill()
    process.close()


def test_a_request_that_cannot_be_read_ends_nothing(server: ForkServer, tmp_path: Path) -> None:
    wrong = msgspec.structs.replace(request(tmp_path), arguments=[7])
    with pytest.raises(ForkServerError) as caught:
        server.fork(wrong, [])
    assert not isinstance(caught.value, ForkServerGoneError)
    run(server, request(tmp_path, "refuse"))


def test_a_server_that_cannot_import_is_reported(tmp_path: Path) -> None:
    quiet = {**ENVIRONMENT, "PYTHONWARNINGS": "ignore"}
    server = ForkServer(["no_such_module"], quiet)
    with pytest.raises(ForkServerGoneError):
        server.fork(request(tmp_path, "sleep"), [])
    server.close()


def test_a_server_ends_with_the_process_that_has_it() -> None:
    program = (
        "import os, sys, time; from tandem.cluster.forking import ForkServer;"
        "server = ForkServer([], dict(os.environ)); print(server._process.pid, flush=True);"
        "time.sleep(3600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-P", "-c", program], cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert not all_gone([pid])
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: all_gone([pid]))
