"""Start one Spark session in this process, read a few rows, and print what that took as JSON.

    python benchmarks/spark_start.py bare|null|tandem|kafka [SERVERS TOPIC [JARS]]

`spark_beside_kafka.py` runs it many times, each in a process of its own. `bare` is a session with
the memory and the quiet log of ours and no Python; `null` has a source in Python besides that does
nothing (`null_source.py`), `kafka` Kafka's jars. Nothing of this project is imported by those
three.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT: Final = Path(__file__).resolve().parent.parent
TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int, *, with_ended: bool = True) -> float:
    """What a process has used, `with_ended` also what its children had that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / TICKS


def descendants(pid: int) -> list[int]:
    """Processes below a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                stat = (path / "stat").read_text(encoding="utf-8")
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.name))
    found = [pid]
    for each in found:
        found += children.get(each, ())
    return found[1:]


def bare_session(jars: str = "") -> SparkSession:
    """Start Spark as `local_session` does, without what is ours."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - its import is part of a start

    quiet = (ROOT / "tandem" / "spark" / "log4j2.properties").as_uri()
    builder = (
        SparkSession.builder.appName("bare")
        .master("local[*]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
    )
    if jars:
        builder = builder.config("spark.driver.extraClassPath", jars)
    return builder.getOrCreate()


def rows_of(spark: SparkSession, kind: str, servers: str, topic: str) -> DataFrame:
    """The rows of a topic, all columns, or as many numbers."""
    if kind == "bare":
        return spark.range(1000)
    if kind == "null":
        from benchmarks.null_source import NullDataSource  # noqa: PLC0415 - its import, too

        spark.dataSource.register(NullDataSource)
        return spark.read.format(NullDataSource.name()).load()
    if kind == "kafka":
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
        return spark.read.format("kafka").options(**options).load()
    options = {"nameServers": servers, "subscribe": topic}
    return spark.read.format("tandem").options(**options).load()


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("kind", choices=("bare", "null", "tandem", "kafka"))
    for name in ("servers", "topic", "jars"):
        parser.add_argument(name, nargs="?", default="")
    arguments = parser.parse_args()
    kind, servers, topic = arguments.kind, arguments.servers, arguments.topic
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    begun, cpu = time.perf_counter(), time.process_time()

    def so_far() -> dict[str, float]:
        below = sum(map(cpu_seconds, descendants(os.getpid())))
        return {
            "wall": time.perf_counter() - begun,
            "cpu": time.process_time() - cpu + below,
            "here": time.process_time() - cpu,
        }

    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = str(ROOT)  # of the processes of a null source
    if kind == "tandem":
        from tandem.spark.session import local_session  # noqa: PLC0415 - part of a start

        spark = local_session()
    else:
        spark = bare_session(arguments.jars)
    session = so_far()
    rows_of(spark, kind, servers, topic).write.format("noop").mode("overwrite").save()
    first = so_far()
    print(json.dumps({"session": session, "first rows": first}))
    spark.stop()


if __name__ == "__main__":
    main()
