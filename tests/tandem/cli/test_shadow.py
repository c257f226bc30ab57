"""What `tandem shadow` says of what the copying process says, and how it ends."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tandem.cli import shadow as shadow_module
from tandem.cli.command_line import app
from tandem.wire.untrusted import decode_json
from tests.support import certificates
from tests.support.patience import PATIENCE_SECONDS
from tests.support.processes import ENVIRONMENT, TANDEM

STATUS = {
    "state": "following",
    "broker": "broker-a",
    "master": "10.0.0.9:10912",
    "log_start": 0,
    "log_end": 4096,
    "behind_bytes": 1024,
    "bytes_per_second": 2048,
    "topics": 3,
}

PROGRAM = """
import json, os, sys
order = json.loads(sys.stdin.buffer.readline())
open({said!r}, "w").write(json.dumps(order))
for line in {lines!r}:
    print(json.dumps(line), flush=True)
if {waits!r}:
    sys.stdin.buffer.read()
    print(json.dumps({stopped!r}), flush=True)
sys.exit({status!r})
"""


class Copying:
    """A process that says what it is told to, in place of the server's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch

    def says(self, *lines: dict[str, object], status: int = 0, waits: bool = False) -> None:
        stopped = {**STATUS, "state": "stopped"}
        program = self._folder / "copying.py"
        program.write_text(
            PROGRAM.format(
                said=str(self._folder / "order.json"),
                lines=lines,
                waits=waits,
                stopped=stopped,
                status=status,
            )
        )
        server = (sys.executable, "-P", str(program))
        self._monkeypatch.setattr("tandem.cluster.spec.SERVER", server)

    @property
    def order(self) -> shadow_module.ShadowOrder:
        return decode_json((self._folder / "order.json").read_bytes(), shadow_module.ShadowOrder)


@pytest.fixture
def copying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copying:
    return Copying(tmp_path, monkeypatch)


def shadow(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["shadow", *arguments])
    return done.exit_code, done.output


LINE = ("127.0.0.1:10912", "-d", "copy")


def test_every_option_arrives(copying: Copying) -> None:
    copying.says()
    options = ["-n", "127.0.0.1:9876", "-n", "127.0.0.2:9876", "--broker", "b", "--retain-hours"]
    options += ["5", "--commit-log-file-size", "4096", "--slave-timeout-ms", "7"]
    status, output = shadow(*LINE, *options, "--count-as-slave")
    assert (status, output) == (0, "")
    order = copying.order
    assert order.directory == str(Path("copy").absolute())
    assert order.master == shadow_module.Address("127.0.0.1", 10912)
    assert [each.ip for each in order.name_servers] == ["127.0.0.1", "127.0.0.2"]
    assert (order.broker_name, order.count_as_slave, order.slave_timeout_ms) == ("b", True, 7)
    assert (order.file_reserved_time_hours, order.commit_log_file_bytes) == (5, 4096)


def test_files_of_tls_arrive_and_those_that_cannot_be_used_are_named(copying: Copying) -> None:
    copying.says()
    ca_file = certificates.files().ca_file
    assert shadow(*LINE, "--tls-ca-file", ca_file, "--tls-any-host") == (0, "")
    assert copying.order.tls is not None
    assert copying.order.tls["ca_file"] == ca_file
    assert not copying.order.tls["check_hostname"]
    for wrong in (
        ["--tls-ca-file", "none.pem"],
        ["--tls-any-host"],
        ["--tls-ca-file", ca_file, "--tls-key-file", "k"],
    ):
        assert shadow(*LINE, *wrong)[0] != 0


def test_keys_of_the_environment_arrive_and_not_by_the_command_line(
    copying: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying.says()
    assert shadow(*LINE) == (0, "")
    assert copying.order.user is None
    monkeypatch.setenv("TANDEM_ACCESS_KEY", "me")
    assert shadow(*LINE)[0] != 0
    monkeypatch.setenv("TANDEM_SECRET_KEY", "some secret")
    assert shadow(*LINE) == (0, "")
    assert copying.order.user == {"access_key": "me", "secret_key": "some secret"}


def test_news_are_a_line_each(copying: Copying) -> None:
    searching = {**STATUS, "state": "searching", "log_end": 0}
    copying.says(searching, STATUS, STATUS)
    status, output = shadow(*LINE)
    assert status == 0
    assert output.splitlines() == [
        "looking for broker-a at 10.0.0.9:10912; 0 B held",
        "following broker-a at 10.0.0.9:10912: 4.0 KiB held, 1.0 KiB behind, 2.0 KiB/s, 3 topics",
        "stopped; the copy has the log from 0 to 4096",
    ]


def test_jsonl_is_every_status_and_json_the_last_one(copying: Copying) -> None:
    copying.says(STATUS, STATUS)
    lines = shadow(*LINE, "--format", "jsonl")[1].splitlines()
    assert [msgspec.json.decode(line) for line in lines] == [STATUS, STATUS]
    assert msgspec.json.decode(shadow(*LINE, "--format", "json")[1]) == STATUS


def test_it_stops_when_all_is_copied(copying: Copying) -> None:
    copying.says(STATUS, {**STATUS, "behind_bytes": 0}, waits=True)
    status, output = shadow(*LINE, "-n", "127.0.0.1:9876", "--until-caught-up")
    assert status == 0
    assert output.splitlines()[-1] == "stopped; the copy has the log from 0 to 4096"


def test_last_words_are_the_error(copying: Copying) -> None:
    copying.says(STATUS, {"error": "the master is another one"}, status=1)
    done = CliRunner().invoke(app, ["shadow", *LINE])
    assert str(done.exception) == "the master is another one"
    copying.says(status=9)
    done = CliRunner().invoke(app, ["shadow", *LINE])
    assert "ended with status 9" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["127.0.0.1", "-d", "x"], 'is not "host:port"'),
        (["no.such.host.invalid:1", "-d", "x"], "give an address"),
        ([*LINE, "--until-caught-up"], "--until-caught-up needs --name-server"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_started(
    copying: Copying, arguments: list[str], words: str
) -> None:
    copying.says(status=9)
    done = CliRunner().invoke(app, ["shadow", *arguments])
    assert words in str(done.exception)


@pytest.mark.slow
@pytest.mark.fault
def test_a_real_one_refuses_the_store_of_a_node(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "00000000000000000000").write_bytes(bytes(4096))
    done = subprocess.run(
        [*TANDEM, "shadow", "127.0.0.1:1", "-d", str(tmp_path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path} holds a store that is no shadow's")
    assert "Traceback" not in done.stderr
