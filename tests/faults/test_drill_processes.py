"""Drills of a cluster that was deployed before: nodes started by a shell, faults by commands."""

import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tandem.client import BlockingAdmin
from tandem.cluster.certificates import make_certificates
from tandem.cluster.spec import ClusterSpec
from tandem.cluster_file.load import load_config
from tandem.drill.command import run_drill
from tandem.drill.consumers.lines import Kind
from tandem.drill.options import DrillOptions
from tandem.drill.outcomes import EXIT_BROKEN, EXIT_HELD, EXIT_NOT_POSSIBLE, EXIT_NOT_RUN
from tandem.drill.scenario import PLAYED
from tests.faults.drills import draw_nothing, signals_as_before, status_of, summary_of, unmet
from tests.faults.etcd_world import coordinator
from tests.support.deployed import deploy, ended_at_last
from tests.support.patience import PATIENCE_SECONDS
from tests.support.processes import TANDEM, all_gone, started, wait_output
from tests.tandem.coordinator.real_etcd import running_etcd

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.thorough]

LINES = 240
"""Enough for each producer to come round all queues after a lie, also on a slow machine."""

FETCH = "cp -r data/$NODE/. $STORE/"
LOSE_ONE = (
    f"{FETCH}; if [ $NODE = broker-a-0 ]; then"
    f" {sys.executable} lose.py $STORE/commitlog/* $STORE/../../ledger.ndjson; fi"
)
LOSE_PROGRAM = """\
import json, sys
*logs, ledger = sys.argv[1:]
ok = [x for x in map(json.loads, open(ledger)) if x.get("status") == "SEND_OK"]
key = next(x["send_id"] for x in ok if x["send_id"].startswith("sync-1"))
for log in logs:
    data = open(log, "rb").read()
    # As if another message had been written there: its key is gone from the disk.
    open(log, "wb").write(data.replace(key.encode(), b"x" * len(key)))
"""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    draw_nothing(monkeypatch)
    with signals_as_before(), ended_at_last(tmp_path):
        yield


def options_of(file: Path, *scenarios: str) -> DrillOptions:
    return DrillOptions(
        target="processes",
        file=file,
        scenarios=scenarios,
        out=file.parent / "report",
        duration_seconds=4.0,
        rate_per_second=120.0,
    )


def topics_of(spec: ClusterSpec) -> list[str]:
    with BlockingAdmin([node.client_address for node in spec.nodes]) as admin:
        return [name for name in admin.topics() if name.startswith("tandem-drill")]


def groups_of(spec: ClusterSpec) -> list[str]:
    """The groups of drills that brokers still know."""
    with BlockingAdmin([node.client_address for node in spec.nodes]) as admin:
        names = [group.group for group in admin.consumer_groups()]
    return [name for name in names if name.startswith("tandem-drill")]


def check_groups(summary: dict[str, Any], *, has_timers: bool) -> None:
    """Groups of this drill alone have handled messages of each kind, and no promise is broken."""
    consumers = summary["consumers"]
    suffix = summary["target"]["topic"].removeprefix("tandem-drill")
    assert suffix
    assert all(name.endswith(suffix) for name in consumers["handled"])
    assert all(consumers["handled"].values())
    sent = {kind for kind, count in consumers["sent"].items() if count}
    assert sent - {Kind.TIMED} == set(Kind) - {Kind.TIMED}
    assert (Kind.TIMED in sent) is has_timers
    assert not consumers["broken_counts"]
    assert not consumers["left"]


def test_a_deployed_cluster_is_drilled_twice_and_left_as_it_was(tmp_path: Path) -> None:
    file, spec = deploy(tmp_path)
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "promise: x\ngroup: classic\nsteps:\n  - start the load\n"
        "  - fill the disk of the master\n  - drain\n"
    )
    options = options_of(file, "master-loss", str(mine))

    for _ in range(2):
        assert status_of(options) == EXIT_HELD, unmet(summary_of(options))
        summary = summary_of(options)
        assert summary["sync_acknowledged"] > 0
        assert summary["byte_identical"] is True
        assert "cannot fill a disk" in summary["runs"][1]["outcome"]
        assert summary["target"]["topic"] != "tandem-drill"
        check_groups(summary, has_timers=False)
        assert running(tmp_path) == 0
    log = (tmp_path / "report" / "logs" / "broker-a-0.commands.log").read_text()
    assert "kill: " in log

    for node in spec.nodes:  # and of one that runs, nothing is stopped
        _run_start(file, node.name)
    assert status_of(options_of(file, str(mine))) == EXIT_NOT_POSSIBLE
    assert running(tmp_path) == 3
    assert topics_of(spec) == []
    assert groups_of(spec) == []


def test_a_fenced_group_that_is_deployed_elects_a_master_and_is_left_as_it_was(
    tmp_path: Path,
) -> None:
    with running_etcd(tmp_path) as members:
        settings = {
            "coordinator": coordinator(members),
            "store": {"timer_wheel_enable": True},
        }
        file, _ = deploy(tmp_path, "fenced", settings=settings)
        options = options_of(file, "master-kill", "master-resign")

        assert status_of(options) == EXIT_HELD, unmet(summary_of(options))
        summary = summary_of(options)
        assert running(tmp_path) == 0

    killed, resigned = summary["runs"]
    assert killed["outcome"] == PLAYED
    assert "ask a master to resign" in resigned["outcome"], "without `secret_file` there is no way"
    check_groups(summary, has_timers=True)
    # A busy machine has its masters replaced as well.
    assert len([each for each in summary["switches"] if each["fault"].startswith("kill")]) == 1
    assert summary["sync_acknowledged"] > 0
    assert summary["sync_lost"] == 0
    assert summary["byte_identical"] is True


def test_a_cluster_with_tls_is_drilled_with_a_certificate(tmp_path: Path) -> None:
    tls = {"mode": "enforcing", "client_auth": "require"}
    file, spec = deploy(tmp_path, settings={"tls": tls})
    made = make_certificates(
        load_config(spec.file), spec.file.parent / "tls", now=dt.datetime.now(dt.UTC)
    )
    assert made
    own = "ca_file: tls/ca.pem\ncertificate_file: tls/client.pem\nkey_file: tls/client.key\n"
    file.write_text(file.read_text() + own)
    options = options_of(file, "master-loss")

    assert status_of(options) == EXIT_HELD, unmet(summary_of(options))
    assert summary_of(options)["sync_acknowledged"] > 0
    assert running(tmp_path) == 0


def _run_start(file: Path, node: str) -> None:
    command = yaml.safe_load(file.read_text())["commands"]["start"]
    environment = {**os.environ, "NODE": node}
    subprocess.run(["sh", "-c", command], cwd=file.parent, env=environment, check=True)


def running(directory: Path) -> int:
    """How many of the nodes have a process."""
    return sum(not all_gone([int(noted.read_text())]) for noted in directory.glob("pids/*"))


def test_a_store_that_lost_a_message_is_found_with_its_evidence(tmp_path: Path) -> None:
    file, _ = deploy(tmp_path, fetch=LOSE_ONE)
    (tmp_path / "lose.py").write_text(LOSE_PROGRAM)
    options = options_of(file, "master-loss")

    assert run_drill(options) == EXIT_BROKEN

    summary = summary_of(options)
    assert summary["sync_lost"] == 1
    (lost,) = (each for each in summary["evidence"] if each["finding"] == "sync_lost")
    assert lost["is_broken"]
    assert lost["send_id"].startswith("sync-1")
    assert lost["disks"]["broker-a-0"].startswith("lacks it")
    assert lost["disks"]["broker-a-1"].startswith("has it")
    assert "answered SEND_OK" in lost["ledger"]


@pytest.mark.parametrize(
    ("lie", "finding"),
    [("forget", "sync_lost"), ("double", "duplicated"), ("reorder", "out_of_order")],
)
def test_a_proxy_that_lies_is_found_with_its_evidence(
    lie: str, finding: str, tmp_path: Path
) -> None:
    file, spec = deploy(tmp_path)
    pairs = []
    text = file.read_text()
    for node in spec.nodes:
        back = node.client_address
        front = f"{node.address[:-3]}{int(node.address[-3:]) - 100}:{node.port}"
        pairs.append(f"{front}={back}")
        text = text.replace(f"- {back}\n", f"- {front}\n", 1)
    file.write_text(text)
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "promise: x\ngroup: classic\nsteps:\n  - start the load\n  - play 100 %\n  - drain\n"
    )
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"line {number}\n" for number in range(LINES)))
    # All lines are sent, however long that takes: the lie is among them.
    options = msgspec.structs.replace(options_of(file, str(mine)), input_file=lines)
    command = [sys.executable, "-m", "tests.support.lying_proxy", lie, *pairs]
    with started(command, stdin=subprocess.PIPE) as proxy:
        wait_output(proxy, "ready")
        status = run_drill(options)
        assert proxy.stdin is not None
        proxy.stdin.close()
        assert proxy.stdout is not None
        said = proxy.stdout.read()

    summary = summary_of(options)
    assert said.split() == ["lied"]
    assert status == EXIT_BROKEN
    assert summary[finding] >= 1
    found = [each for each in summary["evidence"] if each["finding"] == finding]
    assert found
    assert found[0]["is_broken"]
    assert found[0]["disks"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("find: sleep 3600", "did not end within"),
        ("find: exit 255", "status 255"),
        ("start: echo no such unit; exit 5", "no such unit"),
        ("find: echo 1", "does not answer at"),
    ],
)
def test_a_file_that_does_not_fit_the_cluster_ends_the_drill_in_one_line(
    change: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, _ = deploy(tmp_path, patience=1)
    name, _, command = change.partition(": ")
    lines = file.read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith(f"  {name}:"))
    after = (at for at in range(at + 1, len(lines)) if not lines[at].startswith("   "))
    following = next(after, len(lines))
    lines[at:following] = [f"  {name}: {command}"]
    # The limit is for what never ends: a busy machine needs seconds for any other command.
    seconds = 1 if "sleep" in command else 60
    file.write_text("\n".join([*lines, f"command_seconds: {seconds}", ""]))

    assert run_drill(options_of(file, "master-loss")) == EXIT_NOT_RUN

    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]


def test_credentials_that_nodes_refuse_end_the_drill_with_where_they_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, spec = deploy(tmp_path, settings={"security": {"clients": "authenticated"}})
    for node in spec.nodes:
        _run_start(file, node.name)
    create = [*TANDEM, "user", "create", "me", "--super", "--config", str(spec.file)]
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while subprocess.run(create, check=False, capture_output=True).returncode:
        assert time.monotonic() < ends_at, "nobody could create a user"
        time.sleep(0.5)
    plain = file.read_text()
    secret = tmp_path / "me.secret"
    secret.write_text("0123456789abcdef\n")
    secret.chmod(0o600)
    given = "access_key: me\nsecret_key_file: me.secret\n"
    capsys.readouterr()

    for more, words in (("", []), (given, ["user me", str(secret)])):
        file.write_text(plain + more)
        assert run_drill(options_of(file, "master-loss")) == EXIT_NOT_RUN

        (error,) = (x for x in capsys.readouterr().err.splitlines() if x.startswith("error: "))
        wanted = ["access_key", "secret_key_file", str(file), *words]
        assert [each for each in wanted if each not in error] == []
        assert "0123456789abcdef" not in error
    assert running(tmp_path) == 3
