"""RocketMQ's own jars, fetched by Maven the first time."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

JAVA: Final = Path(__file__).parent / "java"

RunJava = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def rocketmq_classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of rocketmq-store and rocketmq-client 5.3.3; skips where there is none."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"needs `{program}`: RocketMQ itself is a Java program")
    written = tmp_path_factory.mktemp("maven") / "classpath"
    fetched = subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(JAVA / "pom.xml")),
            *("dependency:build-classpath", f"-Dmdep.outputFile={written}"),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if fetched.returncode != 0:
        pytest.skip(f"Maven cannot fetch RocketMQ 5.3.3 (no network?): {fetched.stdout[-300:]}")
    return written.read_text()


@pytest.fixture
def run_java(rocketmq_classpath: str, tmp_path: Path) -> RunJava:
    """Run a program of `java/` from its source, and expect it to succeed."""
    home = tmp_path / "home"
    home.mkdir()

    def run(
        program: str, *arguments: object, **properties: str
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [
                *("java", f"-Duser.home={home}", "-cp", rocketmq_classpath),
                *(f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()),
                str(JAVA / f"{program}.java"),
                *map(str, arguments),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=home,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done

    return run
