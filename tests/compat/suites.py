"""The programs of the table: each has many scenarios, and writes a line of JSON about each."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tests.compat.programs import classpath, compile_java, java_command, run_to_the_end
from tests.compat.table import Outcome
from tests.compat.targets import Target

CLIENT_PROGRAMS: Final = ("Harness", "ClientTable")


class Line(msgspec.Struct, frozen=True):
    """What a program says about one of its scenarios."""

    name: str
    ok: bool
    seconds: float
    reason: str = ""


def run_java5(target: Target, directory: Path, part: str) -> list[Outcome]:
    """Applications with rocketmq-client 5.3.3."""
    jars = classpath("pom.xml", "tools")
    compile_java(jars, directory, *CLIENT_PROGRAMS, "ClientTableFive")
    return _run_java("java5", "ClientTable", jars, target, directory, "5", part)


def run_java4(target: Target, directory: Path, part: str) -> list[Outcome]:
    """The same applications with rocketmq-client 4.9.8."""
    jars = classpath("client4.xml")
    compile_java(jars, directory, *CLIENT_PROGRAMS)
    return _run_java("java4", "ClientTable", jars, target, directory, "4", part)


def run_admin(target: Target, directory: Path, part: str) -> list[Outcome]:
    """Operators' programs with DefaultMQAdminExt 5.3.3."""
    jars = classpath("pom.xml", "tools")
    compile_java(jars, directory, "Harness", "ToolWorld", "AdminTable")
    return _run_java("admin", "AdminTable", jars, target, directory, part)


def _run_java(
    suite: str, program: str, jars: str, target: Target, directory: Path, *arguments: str
) -> list[Outcome]:
    written = directory / "results"
    written.touch()
    options = ("-Drocketmq.client.logLevel=WARN",)
    command = [
        *java_command(f"{directory}:{jars}", directory, *options),
        *(program, target.name_servers, target.cluster, target.broker, str(written), *arguments),
    ]
    how = run_to_the_end(command, cwd=directory, log=directory / "log")
    return read_outcomes(suite, target, written, how)


def read_outcomes(suite: str, target: Target, written: Path, how: str) -> list[Outcome]:
    """Read a program's lines; a program that ended badly is a row of its own."""
    lines = [
        msgspec.json.decode(line, type=Line) for line in written.read_bytes().splitlines() if line
    ]
    outcomes = [
        Outcome(suite, line.name, target.name, line.ok, line.seconds, line.reason) for line in lines
    ]
    if how:
        outcomes.append(Outcome(suite, "the program itself", target.name, ok=False, reason=how))
    return outcomes


Run = Callable[[Target, Path, str], list[Outcome]]

SUITES: Final[dict[str, Run]] = {
    "java5": run_java5,
    "java4": run_java4,
    "admin": run_admin,
}
