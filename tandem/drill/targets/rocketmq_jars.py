"""Where RocketMQ is: a directory of it, a directory of jars, or `maven:5.3.3`. And Java to run it.

Nothing is kept of what Maven fetches: its own repository has it.
"""

import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tandem.drill.errors import MissingRequirementError, Requirement

MAVEN: Final = "maven:"
MAVEN_SECONDS_MAX: Final = 600.0

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]*")
_BROKER_JAR: Final = re.compile(r"rocketmq-broker-(\d[0-9A-Za-z.-]*)\.jar")
_CLIENT_JAR: Final = re.compile(r"rocketmq-client-(\d[0-9A-Za-z.-]*)\.jar")
_CONFIG_CLASS: Final = re.compile(r"org/apache/rocketmq/.*Config\.class")
_UTF8: Final = b"\x01"
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>drill</groupId><artifactId>drill</artifactId><version>1</version><dependencies>
{dependencies}
</dependencies></project>
"""
_DEPENDENCY: Final = (
    "<dependency><groupId>org.apache.rocketmq</groupId>"
    "<artifactId>{name}</artifactId><version>{version}</version></dependency>"
)


class Jars(msgspec.Struct, frozen=True, kw_only=True):
    """RocketMQ to be run: its version, and what Java takes as `-cp`."""

    version: str
    class_path: str
    has_controller: bool

    @property
    def is_4(self) -> bool:
        """Whether it is of 4.x, which listens on all addresses."""
        return self.version.startswith("4.")


def find_java() -> str:
    """Return the Java of JAVA_HOME, or the one on the path.

    Raises:
        MissingRequirementError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on the path"
        raise MissingRequirementError(
            f"RocketMQ needs Java, and {where}; install a JDK, or set JAVA_HOME", Requirement.JAVA
        )
    return found


def find_jars(place: str) -> Jars:
    """Return the RocketMQ that `place` names.

    Raises:
        MissingRequirementError: it is not there, or has no broker and name server of one version.
    """
    if place.startswith(MAVEN):
        version = place.removeprefix(MAVEN)
        if not _VERSION.fullmatch(version):
            raise _missing(f"--rocketmq {place}: give a version, such as {MAVEN}5.3.3")
        return _in_jars(place, _from_maven(version))
    return _in_jars(place, _jars_of(place))


def find_client(place: str) -> tuple[str, str]:
    """Return the version of the client of RocketMQ that `place` names, and its class path.

    Raises:
        MissingRequirementError: it is not there, or in two versions.
    """
    if place.startswith(MAVEN):
        version = place.removeprefix(MAVEN)
        if not _VERSION.fullmatch(version):
            raise _missing(f"--rocketmq {place}: give a version, such as {MAVEN}5.3.3")
        jars = _from_maven(version, ("rocketmq-client",))
    else:
        jars = _jars_of(place)
    versions = sorted({m[1] for jar in jars if (m := _CLIENT_JAR.fullmatch(jar.name))})
    if len(versions) != 1:
        what = f"clients of {' and '.join(versions)}" if versions else "no rocketmq-client-*.jar"
        raise _missing(
            f"--rocketmq {place}: it has {what}; give a directory with one version of it and all"
            " that it needs"
        )
    return versions[0], os.pathsep.join(map(str, jars))


def unknown_settings(jars: Jars, names: Iterable[str]) -> list[str]:
    """Return the names of settings that no class of settings in these jars has.

    A broker says nothing of them: it keeps what it was given, and names it when it is asked.

    Source: MixAll.properties2Object, which calls `set` and the name; Configuration.registerConfig.
    """
    setters = {name: _constant(f"set{name[:1].upper()}{name[1:]}") for name in names}
    classes = list(_config_classes(jars)) if setters else []
    if not classes:
        return []
    return [name for name, setter in setters.items() if not any(setter in each for each in classes)]


def _constant(name: str) -> bytes:
    """Return how a class has the name of a method (CONSTANT_Utf8)."""
    data = name.encode()
    return _UTF8 + len(data).to_bytes(2, "big") + data


def _config_classes(jars: Jars) -> Iterable[bytes]:
    for place in jars.class_path.split(os.pathsep):
        jar = Path(place)
        if not jar.name.startswith("rocketmq-"):
            continue
        try:
            with zipfile.ZipFile(jar) as packed:
                found = [each for each in packed.namelist() if _CONFIG_CLASS.fullmatch(each)]
                yield from map(packed.read, found)
        except (OSError, zipfile.BadZipFile) as error:
            raise _missing(f"{jar}: {error}; fetch RocketMQ once more") from error


def _jars_of(place: str) -> list[Path]:
    directory = Path(place)
    if not directory.is_dir():
        what = "is no directory" if directory.exists() else "does not exist"
        raise _missing(
            f"--rocketmq {place}: {what}; give a directory of RocketMQ, one with its jars, or"
            f" {MAVEN}5.3.3"
        )
    lib = directory / "lib"
    return sorted((lib if lib.is_dir() else directory).resolve().glob("*.jar"))


def _in_jars(place: str, jars: list[Path]) -> Jars:
    versions = sorted({m[1] for jar in jars if (m := _BROKER_JAR.fullmatch(jar.name))})
    if len(versions) != 1:
        what = f"brokers of {' and '.join(versions)}" if versions else "no rocketmq-broker-*.jar"
        raise _missing(
            f"--rocketmq {place}: it has {what}; give a directory with one version of RocketMQ:"
            " its own (with lib/), or its jars from Maven"
        )
    names = {jar.name for jar in jars}
    (version,) = versions
    if f"rocketmq-namesrv-{version}.jar" not in names:
        raise _missing(
            f"--rocketmq {place}: it has no rocketmq-namesrv-{version}.jar, and a drill starts a"
            " name server; add that jar"
        )
    empty = [jar.name for jar in jars if jar.name.startswith("rocketmq-") and not _is_zip(jar)]
    if empty:
        raise _missing(
            f"--rocketmq {place}: {', '.join(empty)}: not a jar; fetch RocketMQ once more"
        )
    return Jars(
        version=version,
        class_path=os.pathsep.join(map(str, jars)),
        has_controller=f"rocketmq-controller-{version}.jar" in names,
    )


def _is_zip(jar: Path) -> bool:
    try:
        with jar.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def _from_maven(
    version: str, names: Sequence[str] = ("rocketmq-broker", "rocketmq-namesrv")
) -> list[Path]:
    if shutil.which("mvn") is None:
        raise _missing(
            f"--rocketmq {MAVEN}{version}: there is no mvn on the path; install Maven, or give a"
            " directory of RocketMQ"
        )
    lines = [_DEPENDENCY.format(name=name, version=version) for name in names]
    with tempfile.TemporaryDirectory(prefix="tandem-drill-") as scratch:
        pom, found = Path(scratch, "pom.xml"), Path(scratch, "found")
        pom.write_text(_POM.format(dependencies="\n".join(lines)))
        command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:build-classpath"]
        command.append(f"-Dmdep.outputFile={found}")
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=MAVEN_SECONDS_MAX
            )
        except subprocess.TimeoutExpired as error:
            raise _missing(
                f"--rocketmq {MAVEN}{version}: mvn took more than {MAVEN_SECONDS_MAX:g} s"
            ) from error
        if done.returncode or not found.exists():
            words = _COLOUR.sub("", done.stdout).splitlines()
            said = next((line for line in words if "ERROR" in line), "no reason")
            said = said.removeprefix("[ERROR]").strip()
            raise _missing(f"--rocketmq {MAVEN}{version}: Maven cannot fetch it: {said[:300]}")
        return [Path(entry) for entry in found.read_text().strip().split(os.pathsep)]


def _missing(text: str) -> MissingRequirementError:
    return MissingRequirementError(text, Requirement.ROCKETMQ)
