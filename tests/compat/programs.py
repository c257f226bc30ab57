"""Programs of other people's libraries: fetched, compiled and run, or named as not to be had."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

JAVA: Final = Path(__file__).parent / "java"
FETCH_SECONDS_MAX: Final = 600.0
RUN_SECONDS_MAX: Final = 900.0


class NotToBeHadError(Exception):
    """A program or a library is not on this machine and cannot be fetched. Says which."""


def need(*programs: str) -> None:
    """Check that programs are installed.

    Raises:
        NotToBeHadError: One is not.
    """
    for program in programs:
        if shutil.which(program) is None:
            raise NotToBeHadError(f"needs `{program}`")


@cache
def classpath(pom: str, *profiles: str, version: str = "") -> str:
    """Fetch the jars that a file of `java/` names; return them as Java's option wants them.

    `version`: of RocketMQ, where pom.xml is not to take its own, 5.3.3.

    Raises:
        NotToBeHadError: There is no Java, no Maven or no network.
    """
    need("java", "javac", "mvn")
    # Maven writes it to its own output when no file is given.
    options = ("-P", ",".join(profiles)) if profiles else ()
    given = (f"-Drocketmq.version={version}",) if version else ()
    command = ["mvn", "-B", "-f", str(JAVA / pom), *options, *given, "dependency:build-classpath"]
    text = fetch(command, cwd=JAVA)
    lines = text.splitlines()
    return next(line for line in lines if ".jar" in line and not line.startswith("["))


def fetch(command: list[str], *, cwd: Path, seconds_max: float = FETCH_SECONDS_MAX) -> str:
    """Run something that may need the network; return what it prints.

    Raises:
        NotToBeHadError: It failed.
    """
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=seconds_max, cwd=cwd
        )
    except subprocess.TimeoutExpired:
        raise NotToBeHadError(f"`{command[0]}` took more than {seconds_max:g} s") from None
    if done.returncode != 0:
        words = (done.stdout + done.stderr)[-400:]
        raise NotToBeHadError(f"`{' '.join(command[:3])}` failed (no network?): {words}")
    return done.stdout


def compile_java(jars: str, directory: Path, *names: str) -> None:
    """Compile programs of `java/table` into a directory.

    Raises:
        NotToBeHadError: The compiler said no.
    """
    sources = [str(JAVA / "table" / f"{name}.java") for name in names]
    fetch(["javac", "-nowarn", "-d", str(directory), "-cp", jars, *sources], cwd=directory)


def java_command(jars: str, home: Path, *options: str) -> list[str]:
    """The beginning of a command line: Java with its memory, its logs below `home`."""
    opened = ("java.nio=ALL-UNNAMED", "sun.nio.ch=ALL-UNNAMED", "jdk.internal.ref=ALL-UNNAMED")
    return [
        *("java", "-Xms128m", "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(word for package in opened for word in ("--add-opens", f"java.base/{package}")),
        *("--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"),
        *(f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", *options, "-cp", jars),
    ]


def ended_with_us(command: list[str]) -> list[str]:
    """Have a program end with this process, however that ends, where `setpriv` (util-linux) is.

    With the thread that starts it, to be exact: start it in one that stays.
    """
    setpriv = shutil.which("setpriv")
    return [*((setpriv, "--pdeathsig", "KILL") if setpriv else ()), *command]


def run_to_the_end(
    command: list[str], *, cwd: Path, log: Path, extra_environment: dict[str, str] | None = None
) -> str:
    """Run a program; return how it ended, in words if that was not well."""
    environment = {**os.environ, **(extra_environment or {})}
    with log.open("w") as file:
        try:
            done = subprocess.run(
                command,
                check=False,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=RUN_SECONDS_MAX,
                cwd=cwd,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return f"has not ended after {RUN_SECONDS_MAX:g} s"
    if done.returncode == 0:
        return ""
    return f"ended with {done.returncode}: {log.read_text(errors='replace')[-400:]}"
