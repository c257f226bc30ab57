"""A standalone Spark cluster on this machine, whose Pythons have what a test gives them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from tandem.spark.java import find_java, java_home
from tandem.spark.package import required_distributions

SPARK: Final = Path(pyspark.__file__).parent
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
START_SECONDS: Final = 900


def bare_python(folder: Path, *, with_requirements: bool) -> Path:
    """Make a Python that lacks this project; return the folder of its programs.

    With requirements it has the packages that a `.zip` expects, else only the standard library.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if with_requirements:
        site = next(folder.glob("lib/python*/site-packages"))
        for found in required_distributions():
            for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(str(found.locate_file(top)))
    return folder / "bin"


@contextmanager
def standalone_cluster(folder: Path, python_bin: Path, *, workers: int = 2) -> Iterator[str]:
    """Start a master and workers of one core each; yield the URL of the master."""
    with java_home(find_java()) as home:
        environment = {
            "PATH": f"{python_bin}{os.pathsep}{os.defpath}",
            "JAVA_HOME": home,
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        started: list[subprocess.Popen[bytes]] = []

        def start(name: str, *command: str) -> Path:
            log = folder / f"{name}.log"
            arguments: list[str | Path] = [
                SPARK / "bin/spark-class",
                *command,
                "--host",
                "127.0.0.1",
            ]
            arguments += ["--webui-port", "0"]
            with log.open("wb") as output:
                started.append(
                    subprocess.Popen(
                        arguments, env=environment, stdout=output, stderr=output, cwd=folder
                    )
                )
            return log

        try:
            said = start("master", MASTER, "--port", "0")
            url = _wait_for(said, r"Starting Spark master at (spark://\S+)")
            for number in range(workers):
                place = str(folder / f"worker-{number}")
                options = ("--cores", "1", "--memory", "1g", "--work-dir", place)
                said = start(f"worker-{number}", WORKER, url, *options)
                _wait_for(said, r"(Successfully registered with master)")
            yield url
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                process.wait()


def executors_of(folder: Path) -> list[int]:
    """Return the process ids of the executors that work under `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            where = (entry / "cwd").readlink()
        except OSError:  # gone meanwhile
            continue
        if b"CoarseGrainedExecutorBackend" in command and where.is_relative_to(folder):
            found.append(int(entry.name))
    return found


def kill(process_id: int) -> None:
    """End a process without a word."""
    os.kill(process_id, signal.SIGKILL)


def _wait_for(log: Path, pattern: str) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.2)  # noqa: TID251 - waits for other processes
    raise AssertionError(f"{log.name} does not say {pattern!r}:\n{log.read_text()}")
