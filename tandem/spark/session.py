"""A local Spark session that starts quietly, anywhere, and knows the `commitlog` source."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import tandem
from tandem.spark.commitlog.source import CommitLogDataSource
from tandem.spark.java import find_java, java_home

DRIVER_MEMORY: Final = "1g"
SHUFFLE_PARTITIONS: Final = 4

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for a session that lives for a minute, such as an audit: it spends less processor
time on compiling than it gains by compiled code."""

_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
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
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with java_home(find_java()) as home, _environment(JAVA_HOME=home, SPARK_LOCAL_IP="127.0.0.1"):
        session = builder.getOrCreate()
    session.dataSource.register(CommitLogDataSource)
    return session


def _settings(java_options: str) -> dict[str, str]:
    return {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f"{_QUIET} {java_options}",
        # Workers have to find this package also where it is not installed.
        "spark.executorEnv.PYTHONPATH": str(_PACKAGE_ROOT),
        # Halves what a task costs in Python.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "tandem-spark-warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
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
