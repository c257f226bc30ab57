"""The ways to run that docs/spark-cluster.md names: each block as it is printed, on a real cluster.

The addresses and paths of the page become those of a cluster on this machine. Its workers have a
Python of their own, which has what the page says that it has to have.
"""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from tandem.spark.java import find_java, java_home
from tandem.spark.package import write_package
from tests.support.log_builder import LogBuilder
from tests.support.page_blocks import Block, read_page
from tests.support.paths import ROOT
from tests.support.patience import wait_until
from tests.support.spark_standalone import bare_python, standalone_cluster

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("spark-ways"),
]

PAGE = read_page(ROOT / "docs/spark-cluster.md")
HERE = "tests/tandem/spark/test_ways.py"
COUNT = 400
SERVER_CLASS = "SparkConnectServer"
A_REMOTE = "sc://10.0.0.1:15002"


def ours(language: str) -> list[Block]:
    """The blocks of the page that it says are run here."""
    return [b for b in PAGE if b.language == language and HERE in b.marks.get("not run", "")]


AN_ENVIRONMENT = "environment.tar.gz"


def lines() -> list[str]:
    """Those that stand for themselves."""
    found = [block.text for block in ours("bash") if AN_ENVIRONMENT not in block.text]
    return [line for text in found for line in text.splitlines() if line]


JOBS = [line for line in lines() if SERVER_CLASS not in line]
WORDS = ("local[2]", "local-cluster", "py-files", "workers.tar.gz#", "pipeline_job")


def way(line: str) -> str:
    """A short name for a line of the page."""
    return " ".join(word for word in WORDS if word in line) or "image"


class Ways:
    """A folder with what the page speaks of, and clusters that are started when they are needed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._masters: dict[str, str] = {}
        log = LogBuilder(file_bytes=65_536)
        for number in range(COUNT):
            log.put(topic="orders", body=bytes(200), queue_id=number % 3)
        log.write(folder / "shared/broker-a-0")
        for block in PAGE:
            if "file" in block.marks:
                (folder / block.marks["file"]).write_text(block.text, encoding="utf-8")

    def as_here(self, text: str) -> str:
        """Put what there is here in the places of what the page names."""
        for name in {"workers.zip", "workers.tar.gz"}.intersection(re.findall(r"[\w.]+", text)):
            if not (self.folder / name).exists():
                write_package(self.folder / name)
        if AN_ENVIRONMENT in text:
            self._pack_environment()
        if "spark://10.0.0.1:7077" in text:
            text = text.replace("spark://10.0.0.1:7077", self._master_for(text))
        return text.replace("/shared/", f"{self.folder}/shared/")

    def run(self, *command: str) -> str:
        """Run a command that has to succeed without a traceback; return what it prints."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def environment(self) -> dict[str, str]:
        """That of somebody whose shell has this Python first."""
        home = self._stack.enter_context(java_home(find_java()))
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "JAVA_HOME": home,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def _master_for(self, text: str) -> str:
        """The master of workers whose Python has what a way needs, and no more."""
        has = "all" if "workers." not in text else "little" if "workers.tar.gz" in text else "some"
        if has not in self._masters:
            place = self.folder / f"cluster-{has}"
            place.mkdir()
            programs = self._python(place / "python", has)
            cluster = standalone_cluster(place, programs, workers=1)
            self._masters[has] = self._stack.enter_context(cluster)
        return self._masters[has]

    def _python(self, place: Path, has: str) -> Path:
        programs = bare_python(place, with_requirements=has != "little")
        if has == "all":
            (site,) = place.glob("lib/python*/site-packages")
            write_package(self.folder / "all.zip")
            with zipfile.ZipFile(self.folder / "all.zip") as package:
                package.extractall(site)
        return programs

    def _pack_environment(self) -> None:
        """Pack a Python that has all, with the files that its links lead to."""
        self._python(self.folder / "packed", "all")
        with tarfile.open(
            self.folder / AN_ENVIRONMENT, "w:gz", compresslevel=1, dereference=True
        ) as archive:
            archive.add(self.folder / "packed", ".")


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with ExitStack() as stack:
        yield Ways(tmp_path_factory.mktemp("ways"), stack)


@pytest.mark.parametrize("line", JOBS, ids=way)
def test_what_is_submitted_as_the_page_says_reads_the_log(ways: Ways, line: str) -> None:
    printed = ways.run("bash", "-c", ways.as_here(line))
    if "pipeline_job.py" in line:
        report = msgspec.json.decode(printed.splitlines()[-1])
        assert (report["rows"], report["faults"]) == (COUNT, [])
        assert list((ways.folder / "shared/archive").rglob("*.parquet"))
    else:
        assert re.search(rf"\|\s*orders\|\s*{COUNT}\|", printed), printed


def test_a_packed_environment_is_unpacked_where_it_is_submitted_from(ways: Ways) -> None:
    (block,) = [block for block in ours("bash") if AN_ENVIRONMENT in block.text]
    printed = ways.run("bash", "-ec", ways.as_here(block.text))
    assert re.search(rf"\|\s*orders\|\s*{COUNT}\|", printed), printed


def test_a_program_that_sends_the_package_reads_the_log(ways: Ways) -> None:
    (block,) = [block for block in ours("python") if A_REMOTE not in block.text]
    assert ways.run("python", "-c", ways.as_here(block.text)).split() == [str(COUNT)]


def test_a_client_of_connect_reads_the_log_and_needs_nothing_of_ours(ways: Ways) -> None:
    if importlib.util.find_spec("grpc_status") is None:
        pytest.skip("needs pyspark[connect]")
    (block,) = [block for block in ours("python") if A_REMOTE in block.text]
    (line,) = [line for line in lines() if SERVER_CLASS in line]
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = str(found.getsockname()[1])
    program = ways.as_here(block.text.replace(A_REMOTE, f"sc://127.0.0.1:{port}"))
    assert "tandem" not in block.text
    with server(ways, line.replace("15002", port), int(port)):
        assert ways.run("python", "-c", program).split() == [str(COUNT)]


@contextmanager
def server(ways: Ways, line: str, port: int) -> Iterator[None]:
    log = ways.folder / "connect.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-c", line],
            cwd=ways.folder,
            env=ways.environment(),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until(lambda: process.poll() is not None or listens(port))
        assert process.poll() is None, log.read_text()
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port)):
        return True
