import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem.drill.errors import MissingRequirementError, Requirement
from tandem.drill.targets.rocketmq_jars import Jars, find_jars, find_java, unknown_settings
from tests.tandem.drill.targets.rocketmq_samples import jars_in


def test_a_directory_of_jars_and_one_of_rocketmq_itself_are_the_same(tmp_path: Path) -> None:
    jars_in(tmp_path / "plain", "5.3.3")
    jars_in(tmp_path / "whole" / "lib", "5.3.3")

    plain, whole = find_jars(str(tmp_path / "plain")), find_jars(str(tmp_path / "whole"))

    assert plain.version == whole.version == "5.3.3"
    assert plain.has_controller
    assert not plain.is_4
    assert len(plain.class_path.split(os.pathsep)) == 3


def test_a_version_without_a_controller_is_known_to_have_none(tmp_path: Path) -> None:
    jars_in(tmp_path, "4.9.8", "rocketmq-broker", "rocketmq-namesrv")

    found = find_jars(str(tmp_path))

    assert found.is_4
    assert not found.has_controller


def plant_nothing(directory: Path) -> None:
    directory.mkdir()


def plant_a_file(directory: Path) -> None:
    directory.touch()


def plant_two_versions(directory: Path) -> None:
    jars_in(directory, "5.3.3")
    jars_in(directory, "4.9.8")


def plant_no_name_server(directory: Path) -> None:
    jars_in(directory, "5.3.3", "rocketmq-broker")


def plant_a_cut_jar(directory: Path) -> None:
    jars_in(directory, "5.3.3")
    (directory / "rocketmq-broker-5.3.3.jar").write_bytes(b"<html>")


@pytest.mark.parametrize(
    "plant",
    [
        lambda directory: None,
        plant_nothing,
        plant_a_file,
        plant_two_versions,
        plant_no_name_server,
        plant_a_cut_jar,
    ],
    ids=["missing", "empty", "file", "two-versions", "no-name-server", "cut-jar"],
)
def test_what_is_no_rocketmq_is_refused_in_one_line(
    plant: Callable[[Path], None], tmp_path: Path
) -> None:
    place = tmp_path / "here"
    plant(place)

    with pytest.raises(MissingRequirementError) as refused:
        find_jars(str(place))

    assert refused.value.requirement is Requirement.ROCKETMQ
    assert str(place) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("version", ["", "5.3.3</version>", "../x", "5 3"])
def test_what_is_no_version_never_reaches_maven(version: str) -> None:
    with pytest.raises(MissingRequirementError) as refused:
        find_jars(f"maven:{version}")
    assert refused.value.requirement is Requirement.ROCKETMQ


def test_without_maven_or_java_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(MissingRequirementError) as no_maven:
        find_jars("maven:5.3.3")
    with pytest.raises(MissingRequirementError) as no_java:
        find_java()

    assert no_maven.value.requirement is Requirement.ROCKETMQ
    assert no_java.value.requirement is Requirement.JAVA


def test_java_home_goes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(java)

    java.unlink()
    with pytest.raises(MissingRequirementError):
        find_java()


def test_the_scratch_of_maven_does_not_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "bin").mkdir()
    maven = tmp_path / "bin" / "mvn"
    maven.write_text("#!/bin/sh\nprintf '\\033[1;31m[ERROR]\\033[m no such version\\n'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    with pytest.raises(MissingRequirementError, match=r"fetch it: no such version$"):
        find_jars("maven:9.9.9")

    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def of_classes(directory: Path, **classes: bytes) -> Jars:
    place = directory / "rocketmq-common-5.3.3.jar"
    with zipfile.ZipFile(place, "w") as jar:
        for name, data in classes.items():
            jar.writestr(f"org/apache/rocketmq/common/{name}.class", data)
    path = os.pathsep.join(["netty.jar", str(place)])
    return Jars(version="5.3.3", class_path=path, has_controller=True)


def test_settings_that_no_class_has_are_named(tmp_path: Path) -> None:
    jars = of_classes(
        tmp_path,
        BrokerConfig=b"\x01\x00\x0bsetListenIt\x01\x00\x0csetNothingAt",
        Other=b"\x01\x00\x07setElse",
    )
    assert unknown_settings(jars, ["listenIt", "listen", "else", "x"]) == ["listen", "else", "x"]
    assert unknown_settings(jars, []) == []


def test_without_classes_of_settings_nothing_is_said_of_them(tmp_path: Path) -> None:
    assert unknown_settings(of_classes(tmp_path, Other=b""), ["listenIt"]) == []


def test_a_jar_that_cannot_be_read_is_named_when_settings_are_looked_for(tmp_path: Path) -> None:
    jars = of_classes(tmp_path)
    (tmp_path / "rocketmq-common-5.3.3.jar").write_bytes(b"PK\x03\x04")
    with pytest.raises(MissingRequirementError, match=r"rocketmq-common-5\.3\.3\.jar"):
        unknown_settings(jars, ["listenIt"])
