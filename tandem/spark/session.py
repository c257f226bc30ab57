"""Spark sessions that know our sources.

local_session     in this process: starts quietly, anywhere, on any Java that it finds
cluster_session   on a cluster whose workers have nothing of ours: a package goes to them
submitted_session where `spark-submit` has started this program, and has said where it runs
"""

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

import tandem
from tandem.spark.commitlog.registered import RegisteredCommitLog
from tandem.spark.errors import PackageError
from tandem.spark.java import find_java, java_home
from tandem.spark.pruning import is_wanted, prune_columns
from tandem.spark.source import TandemDataSource

DRIVER_MEMORY: Final = "1g"
SHUFFLE_PARTITIONS: Final = 4

UNPACKED: Final = "tandem_package"
"""The folder that a worker unpacks a package into, in its own working directory."""

PYTHON: Final = "PYSPARK_PYTHON"
"""In the environment of the driver: the Python of the workers, and of processes that plan here."""

TIME_ZONE: Final = "spark.sql.session.timeZone"

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for a session that lives for a minute, such as an audit: it spends less processor
time on compiling than it gains by compiled code."""

_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
# Rows are asked whether they are null before they are read; Arrow need not ask once more, nor count
# references at every byte.
_ARROW = "-Darrow.enable_null_check_for_get=false -Darrow.enable_unsafe_memory_access=true"
_PACKAGE_ROOT = Path(tandem.__file__).parent.parent


def local_session(
    *,
    app_name: str = "tandem",
    master: str = "local[*]",
    java_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark in this process, or join the session that already runs here.

    `settings` are Spark's and win over ours; `java_options` are for the JVM, beside ours. Stop it
    with `session.stop()`.

    Raises:
        NoJavaError: see `tandem.spark.java`.
    """
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**_settings(java_options), **(settings or {})}.items():
        builder = builder.config(name, value)
    # Without this, workers run whatever `python3` is first on PATH.
    os.environ.setdefault(PYTHON, sys.executable)
    with (
        java_home(find_java(), hide_spark_home=workers_have_pyspark(master)) as home,
        _environment(JAVA_HOME=home, SPARK_LOCAL_IP="127.0.0.1"),
    ):
        session = builder.getOrCreate()
    return _knowing_our_sources(session)


def cluster_session(
    master: str,
    package: str | Path,
    *,
    app_name: str = "tandem",
    python: str = "python3",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a driver here whose workers are elsewhere, and send them `package`.

    `package` is what `tandem.spark.package.write_package` wrote: a `.zip` for workers that have
    pyarrow, numpy, msgspec, anyio and outcome, a `.tar.gz` for workers that have only a Python.
    `python` is the name of that Python on the workers; here the same name is made to mean this
    one. Spark wants both to be of the same minor version. `settings` are Spark's and win over ours.

    Raises:
        NoJavaError: see `tandem.spark.java`.
        PackageError: `package` is not there, or its name is that of neither kind; or `python` is a
            path that is not there on this machine.
    """
    # What packs an archive is no part of any other start.
    from tandem.spark.package import ARCHIVE_SUFFIX, ZIP_SUFFIX  # noqa: PLC0415

    package = Path(package).absolute()
    if not package.is_file():
        raise PackageError(f"{package} is not there; make it with `tandem pipeline package`")
    builder = SparkSession.builder.appName(app_name).master(master)
    is_archive = package.name.endswith(ARCHIVE_SUFFIX)
    if not is_archive and package.suffix != ZIP_SUFFIX:
        raise PackageError(f"{package.name} ends in neither {ZIP_SUFFIX} nor {ARCHIVE_SUFFIX}")
    _check_python(python)
    shipped = _archive_settings(package) if is_archive else {}
    for name, value in {**_quiet_driver(), **shipped, **(settings or {})}.items():
        builder = builder.config(name, value)
    os.environ[PYTHON] = python
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    with java_home(find_java()) as home, _environment(JAVA_HOME=home, PATH=here):
        session = builder.getOrCreate()
    if not is_archive:
        session.sparkContext.addPyFile(str(package))
    return _knowing_our_sources(session)


def is_submitted() -> bool:
    """Say whether `spark-submit` has started this program, whose JVM is then there already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_session(*, app_name: str = "tandem") -> SparkSession:
    """Return the session of a program that `is_submitted`: master and settings are those of there.

    Times are in UTC, as in the other sessions, unless they name a time zone.

    Raises:
        PackageError: the workers' Python is in an archive that is not unpacked here.
    """
    _check_python(os.environ.get(PYTHON, ""))
    session = SparkSession.builder.appName(app_name).getOrCreate()
    if not session.sparkContext.getConf().contains(TIME_ZONE):
        session.conf.set(TIME_ZONE, "UTC")
    return _knowing_our_sources(session)


def _knowing_our_sources(session: SparkSession) -> SparkSession:
    for source in (RegisteredCommitLog, TandemDataSource):
        session.dataSource.register(source)
    if is_wanted(session):
        prune_columns(session)
    return session


def _check_python(python: str) -> None:
    """See that a Python with a path is here: Spark starts it here, too, to plan.

    Source: Spark 4.3, `SparkContext.pythonExec` is the one of workers and of `PythonPlannerRunner`.

    Raises:
        PackageError: it is not.
    """
    if os.sep not in python or shutil.which(python) is not None:
        return
    path = Path(python)
    remedy = "Name one that is here, too"
    if not path.is_absolute():
        folder = path.parts[0]
        remedy = (
            "If it is in the archive of an environment, unpack that here as well:"
            f" mkdir {folder} && tar -xzf ARCHIVE -C {folder}"
        )
    raise PackageError(
        f"{python} is not there, seen from {Path.cwd()}: Spark starts the workers' Python on"
        f" the driver, too, to plan. {remedy}"
    )


def workers_have_pyspark(master: str) -> bool:
    """Say whether workers are of this Python, and find its pyspark without help."""
    is_here = re.fullmatch(r"local(\[.*\])?", master) is not None
    is_this_python = os.environ[PYTHON] == sys.executable
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return is_here and is_this_python and str(Path(pyspark.__file__).parent.parent) in packages


def _archive_settings(package: Path) -> dict[str, str]:
    """Settings by which each worker unpacks `package` and imports from there."""
    return {
        "spark.archives": f"{package}#{UNPACKED}",
        "spark.executorEnv.PYTHONPATH": f"./{UNPACKED}",
    }


def _quiet_driver(java_options: str = "") -> dict[str, str]:
    return {
        "spark.driver.extraJavaOptions": f"{_QUIET} {_ARROW} {java_options}",
        # Halves what a task costs in Python.
        "spark.python.unix.domain.socket.enabled": "true",
        TIME_ZONE: "UTC",
        "spark.ui.showConsoleProgress": "false",
    }


def _settings(java_options: str) -> dict[str, str]:
    return {
        **_quiet_driver(java_options),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.python.daemon.module": "tandem.spark.quiet_daemon",
        # Workers have to find this package also where it is not installed.
        "spark.executorEnv.PYTHONPATH": str(_PACKAGE_ROOT),
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "tandem-spark-warehouse")),
        "spark.ui.enabled": "false",
    }


@contextmanager
def _environment(**changes: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
