"""The keys of a user are in no plan, no event log, no checkpoint and no text of an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tandem
from tandem.testing import running_cluster
from tandem.wire.access_control import PolicyEntryInfo
from tests.support.paths import ROOT

PROGRAM = Path(__file__).with_name("secrets_program.py")
SECRET = "hush-7f3d1c0a-not-to-be-seen"
USER = "sparky-5b2e"


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.fault
@pytest.mark.timeout(600)
def test_keys_are_used_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    settings = {"security": {"clients": "authorized", "signatures": "replay_proof"}}
    with running_cluster(tmp_path / "nodes", slaves_count=0, settings=settings) as cluster:
        topic = cluster.topic()
        with tandem.BlockingAdmin(cluster.access) as admin:
            admin.create_user(USER, SECRET)
            entries = [
                PolicyEntryInfo(f"Topic:{topic}", ["Pub", "Sub"], decision="Allow"),
                PolicyEntryInfo("Group:tandem-spark", ["Sub"], decision="Allow"),
                PolicyEntryInfo("Group:SPARK-SINK-*", ["Sub"], decision="Allow"),
            ]
            admin.grant(USER, entries)
        ran = subprocess.run(
            [
                *(sys.executable, "-P", str(PROGRAM), ";".join(cluster.name_servers), topic),
                *(USER, SECRET, str(tmp_path)),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "rows 20" in ran.stdout
    assert "rows 40" in ran.stdout
    (events,) = (tmp_path / "events").iterdir()
    assert topic in events.read_text(), "the event log is that of the queries"
    places = [events, *(path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())]
    assert len(places) > 4
    shown = {str(path): path.read_bytes() for path in places}
    shown |= {"stdout": ran.stdout.encode(), "stderr": ran.stderr.encode()}
    assert [name for name, data in shown.items() if SECRET.encode() in data] == []
