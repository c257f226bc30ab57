"""On a real cluster: executors are processes elsewhere, and their Pythons lack this project."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tandem
from tandem.spark.errors import PackageError
from tandem.spark.package import write_package
from tandem.spark.session import cluster_session
from tandem.testing import running_fenced_cluster
from tests.support.log_builder import LogBuilder
from tests.support.paths import ROOT
from tests.support.spark_standalone import bare_python, standalone_cluster

PROGRAM = Path(__file__).with_name("cluster_program.py")
COUNT = 400


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder(file_bytes=65_536)
    for number in range(COUNT):
        log.put(topic="orders", body=bytes(200), queue_id=number % 3, keys=f"k{number:04}")
    return log.write(tmp_path / "store")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["tandem.zip", "tandem.tar.gz"])
def test_workers_without_the_project_read_write_and_archive_and_executors_may_be_killed(
    name: str, store: Path, tmp_path: Path
) -> None:
    write_package(tmp_path / name)
    python_bin = bare_python(tmp_path / "python", with_requirements=name.endswith(".zip"))
    folder = tmp_path / "cluster"
    folder.mkdir()
    (tmp_path / "nodes").mkdir()
    with (
        running_fenced_cluster(tmp_path / "nodes") as nodes,
        standalone_cluster(folder, python_bin) as url,
    ):
        with tandem.BlockingAdmin(nodes.name_servers) as admin:
            admin.create_topic("from-spark", queue_nums=4)
        servers = ";".join(nodes.name_servers)
        node = nodes.store_directory(nodes.master())
        command: list[str | Path] = [sys.executable, "-P", PROGRAM, url]
        command += [tmp_path / name, store, servers, node, folder]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert len(said["where"]) == 2
    for file, prefix in said["where"]:
        assert not file.startswith(str(ROOT))
        assert prefix == str(python_bin.parent)
    expected = [f"k{number:04}" for number in range(COUNT)]
    assert said["files"]["keys"] == expected
    assert said["files"]["again"] == expected
    assert said["topic"]["sent"] == [*range(400)]
    assert said["archive"]["faults"] == []
    assert said["archive"]["rows"] >= said["topic"]["copies"]
    killed = {said["files"]["killed"], *said["topic"]["killed"]}
    assert len(killed) == 2
    assert not killed & set(said["after"])


def test_a_package_that_is_not_there_or_of_no_kind_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="make it with `tandem pipeline package`"):
        cluster_session("spark://127.0.0.1:1", tmp_path / "tandem.zip")
    (tmp_path / "tandem.egg").touch()
    with pytest.raises(PackageError, match=r"tandem\.egg"):
        cluster_session("spark://127.0.0.1:1", tmp_path / "tandem.egg")
