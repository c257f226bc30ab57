import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from node.start_check import BUSY, CONFIG, STORE, Finding, check_start, files_wanted
from store.machine.machine import this_machine
from tandem.cluster_file.load import load_config
from tandem.testing import write_cluster_file

ENOUGH = 1_000_000


async def found(file: Path, *, open_files: int = ENOUGH) -> list[Finding]:
    """What is found of the first node of a file."""
    config = load_config(file)
    name = config.nodes[0].name
    return await check_start(config, name, this_machine(), open_files=open_files)


def refused(findings: list[Finding]) -> dict[str, int]:
    return {each.subject: each.exit_status for each in findings if each.exit_status}


@contextmanager
def holding(lock: Path) -> Iterator[int]:
    """Another process has a store open."""
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0);"
        " print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


def file_with(directory: Path, sections: dict[str, Any]) -> Path:
    return write_cluster_file(directory, 0, sections, kind="fenced")


async def test_nothing_is_found_where_nothing_is_wrong_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    file = file_with(tmp_path, {})
    assert await found(file) == []
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


async def test_a_port_that_is_taken_is_refused_as_by_a_start(tmp_path: Path) -> None:
    file = file_with(tmp_path, {})
    node = load_config(file).nodes[0]
    with socket.create_server((node.address, node.name_server_port)):
        findings = await found(file)
    assert refused(findings) == {"ports": BUSY}
    assert "name_server_port" in findings[0].text


async def test_an_address_of_another_machine_and_one_that_all_may_reach_are_refused(
    tmp_path: Path,
) -> None:
    file = file_with(tmp_path, {})
    node = load_config(file).nodes[0]
    file.write_text(file.read_text().replace(node.address, "198.51.100.7"))
    findings = await found(file)
    assert refused(findings) == {"exposure": CONFIG, "ports": 1}
    # The first start would make a secret, and those of other machines would not have it.
    assert "secret" in {each.subject for each in findings if not each.exit_status}


async def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = file_with(tmp_path, {})
    secret = load_config(file).secret_file
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text("0" * 64)
    secret.chmod(0o644)
    assert refused(await found(file)) == {"secret": CONFIG}


async def test_certificates_that_are_not_there_are_refused(tmp_path: Path) -> None:
    file = file_with(tmp_path, {"tls": {"mode": "enforcing"}})
    # The client of the coordinator has them, too.
    assert refused(await found(file)) == {"certificates": CONFIG, "coordinator": CONFIG}


async def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = file_with(tmp_path, {})
    config = load_config(file)
    directory = config.node_directory(config.nodes[0])
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("a file is in its place")
    assert refused(await found(file)) == {"directory": STORE}


async def test_a_node_that_runs_is_named_and_its_ports_are_left_alone(tmp_path: Path) -> None:
    file = file_with(tmp_path, {})
    config = load_config(file)
    node = config.nodes[0]
    lock = config.node_directory(node) / "lock"
    lock.parent.mkdir(parents=True)
    with socket.create_server((node.address, node.port)), holding(lock) as pid:
        (finding,) = await found(file)
    assert (finding.subject, finding.exit_status) == ("store", 0)
    assert str(pid) in finding.text


async def test_a_coordinator_that_is_away_is_waited_for_and_one_without_its_file_is_not(
    tmp_path: Path,
) -> None:
    etcd = {"kind": "etcd", "endpoints": ["http://127.0.0.1:1"]}
    file = file_with(tmp_path, {"coordinator": etcd})
    (finding,) = await found(file)
    assert (finding.subject, finding.exit_status) == ("coordinator", 0)
    user = {"user": "tandem", "password_file": "none"}
    (tmp_path / "other").mkdir()
    file = file_with(tmp_path / "other", {"coordinator": etcd | user})
    assert refused(await found(file)) == {"coordinator": CONFIG}


async def test_few_open_files_are_worth_a_word(tmp_path: Path) -> None:
    (finding,) = await found(file_with(tmp_path, {}), open_files=1_024)
    assert (finding.subject, finding.exit_status) == ("open files", 0)


async def test_many_connections_want_more_open_files(tmp_path: Path) -> None:
    file = file_with(tmp_path, {"broker": {"connections_max": 10_000}})
    wanted = files_wanted(10_000)
    assert await found(file, open_files=wanted) == []
    (finding,) = await found(file, open_files=wanted - 1)
    assert (finding.subject, finding.exit_status) == ("open files", 0)
    assert str(wanted) in finding.text


async def test_a_package_that_is_missing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "node.broker.calls", None)
    file = file_with(tmp_path, {"broker": {"grpc_enable": True}})
    assert refused(await found(file)) == {"packages": CONFIG}
