"""`tandem cluster certificates`, as it is typed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FILE = (ROOT / "cluster.yaml").read_text()


def tandem(directory: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable,
        "-P",
        "-c",
        "import sys; from tandem.cli import main; main()",
        *words,
    ]
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_it_says_what_is_there_and_what_it_has_made(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE)
    first = tandem(tmp_path, "cluster", "certificates", "--client", "shop", "--format", "json")
    assert first.returncode == 0, first.stderr
    made = {each["name"]: each["is_new"] for each in json.loads(first.stdout)}
    names = ["ca", "broker-a-0", "broker-a-1", "broker-a-2", "coordinator", "client", "shop"]
    assert made == dict.fromkeys(names, True)
    assert {file.name for file in (tmp_path / "tls").iterdir()} == {
        f"{name}.{kind}" for name in made for kind in ("pem", "key")
    }
    again = tandem(tmp_path, "cluster", "certificates", "--client", "shop", "--format", "text")
    assert [line.split("\t")[2] for line in again.stdout.splitlines()] == ["no"] * len(made)
    renewed = tandem(tmp_path, "cluster", "certificates", "--renew", "--format", "json")
    assert [each["is_new"] for each in json.loads(renewed.stdout)] == [False, *[True] * 5]


@pytest.mark.slow
def test_they_go_where_the_cluster_file_has_them_or_where_one_says(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE.replace("tls/ca.pem", "keys/ca.pem"))
    assert tandem(tmp_path, "cluster", "certificates").returncode == 0
    assert (tmp_path / "keys/ca.key").exists()
    assert tandem(tmp_path, "cluster", "certificates", "--directory", "there").returncode == 0
    assert (tmp_path / "there/ca.key").exists()


@pytest.mark.parametrize("name", ["ca", "broker-a-1", "../x", ""])
def test_a_name_that_is_somebody_elses_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE)
    done = tandem(tmp_path, "cluster", "certificates", "--client", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {name!r} is ")
    assert not (tmp_path / "tls").exists()


def test_without_the_library_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE)
    (tmp_path / "without").mkdir()
    (tmp_path / "without/cryptography.py").write_text(
        "raise ModuleNotFoundError('No module named cryptography')"
    )
    path = f"{tmp_path / 'without'}:{ROOT}"
    done = tandem(tmp_path, "cluster", "certificates", PYTHONPATH=path)
    assert done.returncode == 1
    assert "tandem-mq[tls]" in done.stderr


@pytest.mark.slow
def test_the_environment_names_the_ca_of_a_cluster_whose_file_is_elsewhere(
    tmp_path: Path,
) -> None:
    asked = ["topic", "list", "-n", "127.0.0.1:1"]
    done = tandem(tmp_path, *asked, TANDEM_TLS_CA_FILE=str(tmp_path / "none.pem"))
    assert (done.returncode, "none.pem: No such file" in done.stderr) == (2, True)
    done = tandem(tmp_path, *asked, TANDEM_TLS_CA_FILE="x", TANDEM_TLS_KEY_FILE="y")
    assert (done.returncode, "certificate_file" in done.stderr) == (2, True)
    shutil.rmtree(tmp_path)
