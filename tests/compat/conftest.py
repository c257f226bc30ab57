"""RocketMQ's own jars, fetched by Maven the first time, and its store and ours in processes."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.compat.probe import Probe

JAVA: Final = Path(__file__).parent / "java"
REPOSITORY: Final = Path(__file__).parent.parent.parent

JAVA_SECONDS_MAX: Final = 200.0
"""Longer than its own limits take together."""

RunJava = Callable[..., str]
StartJava = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="session")
def rocketmq_classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of rocketmq-store and rocketmq-client 5.3.3; skips where there is none."""
    return _fetch(tmp_path_factory)


@pytest.fixture(scope="session")
def agent_jar(tmp_path_factory: pytest.TempPathFactory) -> str:
    """OpenTelemetry's agent for Java 2.9.0; skips where it cannot be had."""
    jars = _fetch(tmp_path_factory, "-P", "agent").split(":")
    return next(jar for jar in jars if "opentelemetry-javaagent" in jar)


@pytest.fixture(scope="session")
def broker_classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same with rocketmq-broker."""
    return _fetch(tmp_path_factory, "-P", "broker")


@pytest.fixture(scope="session")
def newest_classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of rocketmq-store and rocketmq-client 5.5.0; skips where there is none."""
    return _fetch(tmp_path_factory, "-Drocketmq.version=5.5.0")


def _fetch(tmp_path_factory: pytest.TempPathFactory, *options: str) -> str:
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"needs `{program}`: RocketMQ itself is a Java program")
    written = tmp_path_factory.mktemp("maven") / "classpath"
    fetched = subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), *options),
            *("dependency:build-classpath", f"-Dmdep.outputFile={written}"),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if fetched.returncode != 0:
        pytest.skip(f"Maven cannot fetch RocketMQ (no network?): {fetched.stdout[-300:]}")
    return written.read_text()


@pytest.fixture
def run_java(rocketmq_classpath: str, tmp_path: Path) -> RunJava:
    """Run a program of `java/` from its source, which must succeed; return what it prints."""
    home = tmp_path / "home"
    home.mkdir()

    def run(program: str, *arguments: object) -> str:
        # To files: whatever happens, what it has said can be read.
        said, errors = home / f"{program}.out", home / f"{program}.err"
        command = [*_java(rocketmq_classpath, home), str(JAVA / f"{program}.java")]
        with said.open("w") as out, errors.open("w") as err:
            try:
                done = subprocess.run(
                    [*command, *map(str, arguments)],
                    check=False,
                    stdout=out,
                    stderr=err,
                    timeout=JAVA_SECONDS_MAX,
                    cwd=home,
                )
            except subprocess.TimeoutExpired:
                how = f"has not ended after {JAVA_SECONDS_MAX:g} s"
            else:
                how = f"ended with {done.returncode}"
        assert how == "ended with 0", (
            f"{how}: {said.read_text()[-2000:]}{errors.read_text()[-4000:]}"
        )
        return said.read_text()

    return run


@pytest.fixture
def start_java(rocketmq_classpath: str, tmp_path: Path) -> Iterator[StartJava]:
    """Start programs of `java/` with pipes to them; they end with the test."""
    home = tmp_path / "home-of-started"
    home.mkdir()
    with ExitStack() as stack:

        def start(
            program: str,
            *arguments: object,
            classpath: str = rocketmq_classpath,
            options: tuple[str, ...] = (),
            log_file: Path | None = None,
        ) -> "subprocess.Popen[str]":
            log = stack.enter_context((log_file or home / f"{program}.log").open("w"))
            command = [*_java(classpath, home), *options, str(JAVA / f"{program}.java")]
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, *map(str, arguments)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    cwd=home,
                )
            )
            stack.callback(process.kill)
            return process

        yield start


def _java(classpath: str, home: Path) -> list[str]:
    # RocketMQ logs to the user's home directory.
    homes = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")
    return ["java", "-Xmx512m", *homes, "-cp", classpath]


@pytest.fixture(scope="module")
def rocketmq(rocketmq_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    """RocketMQ's DefaultMessageStore in a process of its own."""
    home = tmp_path_factory.mktemp("rocketmq")
    command = [*_java(rocketmq_classpath, home), str(JAVA / "StoreProbe.java")]
    with Probe(command, cwd=home, log=home / "log") as probe:
        yield probe


@pytest.fixture(scope="module")
def newest(newest_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    """The store of RocketMQ 5.5.0 in a process of its own."""
    home = tmp_path_factory.mktemp("newest")
    command = [*_java(newest_classpath, home), str(JAVA / "StoreProbe.java")]
    with Probe(command, cwd=home, log=home / "log") as probe:
        yield probe


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    """Our store in a process of its own."""
    command = [sys.executable, "-m", "tests.compat.store_probe"]
    log = tmp_path_factory.mktemp("ours") / "log"
    with Probe(command, cwd=REPOSITORY, log=log) as probe:
        yield probe
