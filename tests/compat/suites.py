"""The programs of the table: each has many scenarios, and writes a line of JSON about each."""

import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from tandem.client import BlockingAdmin
from tests.compat.mqadmin import (
    ALL_COMMANDS,
    COMMANDS,
    USER_COMMANDS,
    Command,
    difference_of,
    problem_of,
    shape_of,
    some_of,
)
from tests.compat.programs import (
    classpath,
    compile_java,
    fetch,
    java_command,
    need,
    run_to_the_end,
)
from tests.compat.table import Outcome
from tests.compat.targets import Guarded, Target

PROGRAMS: Final = Path(__file__).parent
CPP_PACKAGE: Final = "rocketmq==0.4.4"
TOPICS_COUNT: Final = 24
TOPICS_SECONDS_MAX: Final = 20.0
CLIENT_PROGRAMS: Final = ("Harness", "Keys", "ClientTable")
TOOL_PROGRAMS: Final = ("Harness", "Keys", "ToolWorld")


class Line(msgspec.Struct, frozen=True):
    """What a program says about one of its scenarios."""

    name: str
    ok: bool
    seconds: float
    reason: str = ""
    output: str = ""


Read = Callable[[Line], tuple[bool, str, list[str]]]
"""Whether a row passes, why not, and the shape of its output."""


class Release(msgspec.Struct, frozen=True):
    """A version of RocketMQ 5 whose client and tools are run.

    `suffix`: of its suites' names. Scenarios and commands are the same.
    """

    version: str
    suffix: str = ""

    @property
    def jars(self) -> str:
        """Its class path."""
        return classpath("pom.xml", "tools", version=self.version)


FIVE_THREE: Final = Release("5.3.3")
FIVE_FIVE: Final = Release("5.5.0", "55")
"""The newest client and tools that Maven has; of the broker it has 5.5.1 as well."""


def base_suite(suite: str) -> str:
    """Return whose scenarios a suite runs: those of 5.5 are the ones of 5.3."""
    return suite.removesuffix(FIVE_FIVE.suffix)


def run_java5(release: Release, target: Target, directory: Path, part: str) -> list[Outcome]:
    """Applications with rocketmq-client."""
    suite = "java55" if release.suffix else "java5"
    compile_java(release.jars, directory, *CLIENT_PROGRAMS, "ClientTableFive", "PopTable")
    return _run_java(suite, "ClientTable", release.jars, target, directory, "5", part)


def run_priorities(target: Target, directory: Path, part: str = "") -> list[Outcome]:
    """Applications with messages that have priorities, which brokers of 5.3 do not know."""
    jars = FIVE_FIVE.jars
    compile_java(
        *(jars, directory, *CLIENT_PROGRAMS, "ClientTableFive", "PopTable", "PriorityTable")
    )
    return _run_java("priorities", "PriorityTable", jars, target, directory, part)


def run_java4(target: Target, directory: Path, part: str) -> list[Outcome]:
    """The same applications with rocketmq-client 4.9.8."""
    jars = classpath("client4.xml")
    compile_java(jars, directory, *CLIENT_PROGRAMS)
    return _run_java("java4", "ClientTable", jars, target, directory, "4", part)


def run_admin(release: Release, target: Target, directory: Path, part: str) -> list[Outcome]:
    """Operators' programs with DefaultMQAdminExt."""
    suite = f"admin{release.suffix}"
    compile_java(release.jars, directory, *TOOL_PROGRAMS, "AdminTable")
    return _run_java(suite, "AdminTable", release.jars, target, directory, part)


def run_sequences(release: Release, target: Target, directory: Path, part: str) -> list[Outcome]:
    """What rocketmq-exporter and the Dashboard ask, in their order."""
    suite = f"sequences{release.suffix}"
    compile_java(release.jars, directory, *TOOL_PROGRAMS, "SequenceTable")
    return _run_java(
        suite, "SequenceTable", release.jars, target, directory, part, read=_read_answers
    )


def run_mqadmin(release: Release, target: Target, directory: Path, part: str) -> list[Outcome]:
    """Commands of mqadmin, in one process."""
    commands = [each for each in COMMANDS if each.signs or not target.has_users]
    return _run_commands(f"mqadmin{release.suffix}", commands, release, target, directory, part)


def run_users(release: Release, target: Target, directory: Path, part: str) -> list[Outcome]:
    """Those of users and access lists, which need a target that has them."""
    return _run_commands(f"users{release.suffix}", USER_COMMANDS, release, target, directory, part)


def _run_commands(
    suite: str,
    commands: Sequence[Command],
    release: Release,
    target: Target,
    directory: Path,
    part: str,
) -> list[Outcome]:
    jars = release.jars
    compile_java(jars, directory, *TOOL_PROGRAMS, "MqadminTable")
    file = directory / "commands"
    rows = ((command.lane, command.name, *command.words.split()) for command in commands)
    file.write_text("".join("\t".join(row) + "\n" for row in rows))
    return _run_java(
        suite, "MqadminTable", jars, target, directory, str(file), part, read=_read_printed
    )


def compared(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Turn what a tool prints for us otherwise than for RocketMQ into failures."""
    real = {
        (row.suite, row.name): row.shape for row in outcomes if row.target == "real" and row.shape
    }
    return [
        msgspec.structs.replace(row, ok=False, reason=difference)
        if row.ok and (difference := _difference(row, real))
        else row
        for row in outcomes
    ]


def _difference(outcome: Outcome, real: Mapping[tuple[str, str], list[str]]) -> str:
    answered = real.get((outcome.suite, outcome.name))
    if outcome.target == "real" or not outcome.shape or answered is None:
        return ""
    if base_suite(outcome.suite) == "sequences":
        missing = sorted(set(answered) - set(outcome.shape))
        return f"not answered: {some_of(missing)}" if missing else ""
    command = next(command for command in ALL_COMMANDS if command.name == outcome.name)
    return difference_of(command, answered, outcome.shape)


def _read_printed(line: Line) -> tuple[bool, str, list[str]]:
    command = next(command for command in ALL_COMMANDS if command.name == line.name)
    if line.reason and not command.is_refused:
        return False, line.reason, []
    problem = problem_of(command, f"{line.output}\n{line.reason}")
    shape = shape_of(line.output) if command.compared != "not" else []
    return not problem, problem, shape


def _read_answers(line: Line) -> tuple[bool, str, list[str]]:
    return line.ok, line.reason, line.output.splitlines()


def _as_it_says(line: Line) -> tuple[bool, str, list[str]]:
    return line.ok, line.reason, []


def run_go(target: Target, directory: Path, part: str) -> list[Outcome]:
    """Applications with rocketmq-client-go 2.1.2."""
    need("go")
    shutil.copytree(PROGRAMS / "go", directory, dirs_exist_ok=True)
    fetch(["go", "build", "-o", "scenarios", "."], cwd=directory)
    command = [str(directory / "scenarios")]
    return _run_with_topics("go", command, target, directory, part)


def run_node(target: Target, directory: Path, part: str) -> list[Outcome]:
    """Applications with ali-ons 3.12.0."""
    need("node", "npm")
    shutil.copytree(PROGRAMS / "node", directory, dirs_exist_ok=True)
    fetch(["npm", "ci", "--no-audit", "--no-fund"], cwd=directory)
    return _run_with_topics("node", ["node", "scenarios.js"], target, directory, part)


def run_cpp(target: Target, directory: Path, part: str) -> list[Outcome]:
    """Applications with RocketMQ's C++ client 1.2, through the package `rocketmq` 0.4.4 of PyPI."""
    need("pip")
    wheel = ["pip", "install", "-q", "--no-deps", "--target", "library", CPP_PACKAGE]
    fetch(wheel, cwd=directory)
    library = str(directory / "library")
    program = "import rocketmq.client"
    fetch(
        [sys.executable, "-c", f"import sys; sys.path.append({library!r}); {program}"],
        cwd=directory,
    )
    command = [sys.executable, str(PROGRAMS / "cpp" / "scenarios.py")]
    # The library logs to the home directory.
    environment = {"PYTHONPATH": library, "HOME": str(directory)}
    return _run_with_topics("cpp", command, target, directory, part, environment=environment)


def _run_with_topics(
    suite: str,
    command: list[str],
    target: Target,
    directory: Path,
    part: str,
    *,
    environment: dict[str, str] | None = None,
) -> list[Outcome]:
    """Run a program for which topics are made: a number after the prefix, four queues each."""
    prefix = f"{suite}{secrets.token_hex(3)}"
    names = [f"{prefix}_{number}" for number in range(TOPICS_COUNT)]
    make_topics(target, names)
    written = directory / "results"
    written.touch()
    words = [*command, target.name_servers, prefix, str(written), part]
    how = run_to_the_end(words, cwd=directory, log=directory / "log", extra_environment=environment)
    return read_outcomes(suite, target, written, how)


def make_topics(target: Target, names: Sequence[str]) -> None:
    """Create topics and wait until every name server has them in its routes."""
    servers = target.name_servers.split(";")
    with BlockingAdmin(target.access) as admin:
        for name in names:
            admin.create_topic(name, queue_nums=4)
    for server in servers:
        with BlockingAdmin(msgspec.structs.replace(target.access, name_servers=[server])) as admin:
            deadline = time.monotonic() + TOPICS_SECONDS_MAX
            while not set(names) <= set(admin.topics()) and time.monotonic() < deadline:
                time.sleep(0.1)  # noqa: TID251 - waits for other processes


def _run_java(
    suite: str,
    program: str,
    jars: str,
    target: Target,
    directory: Path,
    *arguments: str,
    read: Read = _as_it_says,
) -> list[Outcome]:
    written = directory / "results"
    written.touch()
    options = ["-Drocketmq.client.logLevel=WARN", *target.java_options]
    command = [
        *java_command(f"{directory}:{jars}", directory, *options),
        *(program, target.name_servers, target.cluster, target.broker, str(written), *arguments),
    ]
    how = run_to_the_end(command, cwd=directory, log=directory / "log")
    return read_outcomes(suite, target, written, how, read)


def read_outcomes(
    suite: str, target: Target, written: Path, how: str, read: Read = _as_it_says
) -> list[Outcome]:
    """Read a program's lines; a program that ended badly is a row of its own."""
    outcomes = []
    for text in written.read_bytes().splitlines():
        line = msgspec.json.decode(text, type=Line)
        ok, reason, shape = read(line)
        outcomes.append(
            Outcome(suite, line.name, target.name, ok, line.seconds, reason, shape=shape)
        )
    if how:
        outcomes.append(Outcome(suite, "the program itself", target.name, ok=False, reason=how))
    return outcomes


Run = Callable[[Target, Path, str], list[Outcome]]


def _with(release: Release, run: Callable[[Release, Target, Path, str], list[Outcome]]) -> Run:
    return partial(run, release)


SUITES: Final[dict[str, Run]] = {
    "java5": _with(FIVE_THREE, run_java5),
    "java55": _with(FIVE_FIVE, run_java5),
    "java4": run_java4,
    "admin": _with(FIVE_THREE, run_admin),
    "admin55": _with(FIVE_FIVE, run_admin),
    "sequences": _with(FIVE_THREE, run_sequences),
    "sequences55": _with(FIVE_FIVE, run_sequences),
    "mqadmin": _with(FIVE_THREE, run_mqadmin),
    "mqadmin55": _with(FIVE_FIVE, run_mqadmin),
    "users": _with(FIVE_THREE, run_users),
    "users55": _with(FIVE_FIVE, run_users),
    "go": run_go,
    "node": run_node,
    "cpp": run_cpp,
}


def suites_for(guarded: Guarded) -> list[str]:
    """Return what can be run against targets that ask for this."""
    if guarded.with_users:
        return [*JAVA_SUITES, "users", "users55"]
    others = (name for name in SUITES if base_suite(name) != "users")
    return list(JAVA_SUITES if guarded.with_tls else others)


JAVA_SUITES: Final = (
    *("java5", "java55", "java4"),
    *("admin", "admin55", "sequences", "sequences55", "mqadmin", "mqadmin55"),
)
"""What can be run with TLS and with users. Of the others, Go 2.1.2 and ali-ons know no TLS; what
C++ 1.2 knows of it is not known; none of their programs signs."""

STAGES: Final = (
    ("java5", "go", "node"),
    ("java4", "cpp"),
    ("java55",),
    ("admin",),
    ("admin55",),
    ("sequences", "sequences55"),
    ("mqadmin",),
    ("mqadmin55",),
    ("users",),
    ("users55",),
)
"""Those of a stage run side by side. Tools come last: some of them stop whoever sends."""
