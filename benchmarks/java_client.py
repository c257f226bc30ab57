"""RocketMQ's client as a load: a process of its own that lasts, so that it is warm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from benchmarks.pipelined import Answered, LoadError
from benchmarks.rivals import java_command
from tests.compat.programs import classpath, fetch

JAVA: Final = Path(__file__).resolve().parent / "java"
_HEAP: Final = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")


class _Answer(msgspec.Struct):
    messages: int
    seconds: float
    messages_in_all: int
    failure: str


class JavaClient:
    """A Java program that takes loads line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def run(self, load: str, depth: int, seconds: float) -> Answered:
        """Run one load to its end.

        Raises:
            LoadError: A send failed.
        """
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(f"{load} {depth} {seconds}\n")
        stdin.flush()
        answer = msgspec.json.decode(line_of(self._process.stdout), type=_Answer)
        if answer.failure:
            raise LoadError(f"the Java client: {answer.failure}")
        return Answered(answer.messages, answer.seconds, answer.messages_in_all)


def line_of(stdout: IO[str] | None) -> str:
    """Return the next line that the program prints."""
    assert stdout is not None
    if line := stdout.readline():
        return line
    sys.exit("the Java client has ended")


@contextmanager
def java_program(
    home: Path, jars: str, name: str, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Compile a program of `java/` and run it while the block runs. It says READY.

    Raises:
        NotToBeHadError: The compiler said no.
    """
    home.mkdir()
    fetch(["javac", "-nowarn", "-d", str(home), "-cp", jars, str(JAVA / f"{name}.java")], cwd=home)
    command = [*java_command(f"{home}:{jars}", home, *_HEAP), name, *arguments]
    with (
        (home / "said").open("w") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=home,
        ) as process,
    ):
        try:
            while line_of(process.stdout) != "READY\n":
                pass
            yield process
        finally:
            process.kill()


@contextmanager
def java_client(home: Path, name_server: str, topic: str) -> Iterator[JavaClient]:
    """Have RocketMQ's client up, a producer of one topic.

    Raises:
        NotToBeHadError: The library cannot be fetched, or there is no compiler.
    """
    jars = classpath("pom.xml")
    with java_program(home, jars, "ClientBench", name_server, topic) as process:
        yield JavaClient(process)
