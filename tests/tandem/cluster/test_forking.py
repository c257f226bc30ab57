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
    server = ForkServer.started(["json"], ENVIRONMENT)
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


def test_a_package_whose_program_the_server_has_imported_begins_without_a_warning(
    tmp_path: Path,
) -> None:
    server = ForkServer.started(["tandem_server.__main__"], ENVIRONMENT)
    wanted = msgspec.structs.replace(request(tmp_path, "--help"), module="tandem_server")
    _, text = run(server, wanted)
    server.close()
    assert text.startswith("usage: python -P -m tandem_server")


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
    server = ForkServer.started(["no_such_module"], quiet)
    with pytest.raises(ForkServerGoneError):
        server.fork(request(tmp_path, "sleep"), [])
    server.close()


OWNER = """
import os, sys, time
from tandem.cluster.forking import ForkServer
server = getattr(ForkServer, sys.argv[1])([], dict(os.environ))
print(server.pid, flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("how", ["started", "forked"])
def test_a_server_ends_with_the_process_that_has_it(how: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-P", "-c", OWNER, how],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
    )
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        # Just after its `exec` the system may not say yet by which command it runs.
        wait_until(lambda: not all_gone([pid]))
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: all_gone([pid]))


FORKS = """
import json, os, signal, sys
from tandem.cluster.forking import ForkRequest, ForkServer
signal.signal(signal.SIGINT, lambda *_: None)
program, directory, root = sys.argv[1:]
server = ForkServer.forked(["json"], {"PYTHONPATH": root})
request = ForkRequest(
    module=program, arguments=["report"], directory=directory, environment={"ONLY": "this"},
    leads_session=True,
)
null = os.open(os.devnull, os.O_RDONLY)
process = server.fork(request, [null, 1, 2])
process.wait(3600)
process.close()
server.close()
"""


def test_what_a_forked_server_forks_begins_as_a_program_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS, PROGRAM, str(tmp_path), str(ROOT)],
        cwd=ROOT,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "arguments": ["report"],
        "descriptors": [0, 1, 2],
        "directory": str(tmp_path),
        "environment": {"ONLY": "this"},
        "leads": [True, True],
    }


def test_a_forked_server_imports_nothing_of_its_callers_directory(tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text("")
    program = (
        "import sys; from tandem.cluster.forking import ForkServer;"
        "server = ForkServer.forked(['only_here'], {'PYTHONPATH': sys.argv[1]}); server.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT)],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "ModuleNotFoundError" in done.stderr
