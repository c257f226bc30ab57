"""Spark's source and sink of ours beside those of Kafka, in turns, in one run.

    python benchmarks/spark_beside_kafka.py [--rounds 5] [--rows 1000000] [--parts start,stream,...]
                                            [--sizes 1000 100000] [--sinks noop count]
                                            [--batches 12 60] [--java-options=...]

It needs Java 17 and Maven, which fetches a Kafka 4.1 broker and Spark's package for Kafka; it says
so if they are not there. One broker of each on this machine, 8 queues or partitions, bodies of
1,000 bytes, the same rows:

    start    a session in a process of its own, and the first 1,000 rows read in it
    stream   micro-batches of 1,000 and of 100,000 rows, into noop and foreachBatch with count()
    batch    all rows, all columns, into noop
    sink     100,000 rows from Spark into a topic, beside our own producers; and micro-batches of
             1,000 rows into a topic

Beside the two are `bare`, a session or a stream (Spark's `rate-micro-batch`) without a source of
anybody's, and `null`, a source in Python that does nothing (`null_source.py`): what Spark takes for
any source in Python. `--batches` says how many micro-batches warm a stream up, and how many count.

Each round has all of them once, one after the other; the first round does not count. What is
printed are the least and the median of each figure. CPU seconds are those of the JVM (`jvm`), of
which its compilers have `jit`, its Python processes (`python`), both together (`spark`), this
process, which also looks for the end of each micro-batch (`here`), and the broker. On a machine
that does other things, too, CPU seconds say more than seconds, and the least more than the median.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio
import pyspark

import tandem
from benchmarks.kafka import kafka_group
from benchmarks.null_source import NullDataSource
from benchmarks.rivals import pause
from benchmarks.spark_start import TICKS, cpu_seconds, descendants
from tandem.spark.session import local_session
from tandem.testing import RunningCluster, running_cluster
from tests.compat.programs import NotToBeHadError, classpath

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

POM: Final = Path(__file__).resolve().parent / "java" / "spark-kafka.xml"
START: Final = Path(__file__).resolve().parent / "spark_start.py"
PARTS: Final = ("start", "stream", "batch", "sink")
SINKS: Final = ("noop", "count")
QUEUES: Final = 8
BODY_BYTES: Final = 1000
FEW: Final = 1000
MANY: Final = 100_000
BATCHES: Final = {FEW: (12, 60), MANY: (1, 2)}
"""Micro-batches of a stream: how many warm it up, and how many count."""
WAIT_SECONDS_MAX: Final = 300.0
LOOK_SECONDS: Final = 0.05
"""Between two looks for the end of a micro-batch."""
OF_BATCHES: Final = (
    "triggerExecution",
    "latestOffset",
    "reportLatestOffset",
    "queryPlanning",
    "getBatch",
    "walCommit",
    "addBatch",
    "commitOffsets",
    "commitBatch",
)
SETTINGS: Final = {
    "store": {"mapped_file_size_commit_log_bytes": 1 << 30, "max_message_size_bytes": 4 << 20}
}

Figures = dict[str, float]


def spark_jars() -> str:
    """The jars of Spark's package for Kafka that pyspark has not, as Java's option wants them.

    Raises:
        NotToBeHadError: There is no Java, no Maven or no network.
    """
    here = {path.name.rpartition("-")[0] for path in _pyspark_jars()}
    jars = classpath(str(POM)).split(os.pathsep)
    return os.pathsep.join(each for each in jars if Path(each).name.rpartition("-")[0] not in here)


def _pyspark_jars() -> list[Path]:
    return list((Path(pyspark.__file__).parent / "jars").glob("*.jar"))


class Side:
    """One of the two: how its topics are made, read and written, and its broker's process."""

    def __init__(self, name: str, servers: str, broker: int | None = None) -> None:
        self.name = name
        self.servers = servers
        self.broker = broker

    @property
    def format(self) -> str:
        """The name of its source in Spark."""
        return {"bare": "rate-micro-batch", "null": NullDataSource.name()}.get(self.name, self.name)

    @property
    def server_option(self) -> str:
        """The option that names the servers."""
        return "nameServers" if self.name == "tandem" else "kafka.bootstrap.servers"

    def reading(self, topic: str) -> dict[str, str]:
        """Options of the source."""
        if self.broker is None:
            return {"bodyBytes": str(BODY_BYTES)}
        return {self.server_option: self.servers, "subscribe": topic}

    def writing(self, topic: str) -> dict[str, str]:
        """Options of the sink. With one node an answer means that its master has the message."""
        acks = {"ack": "async"} if self.name == "tandem" else {"kafka.acks": "all"}
        return {self.server_option: self.servers, "topic": topic, **acks}


class Meter:
    """CPU seconds by who used them."""

    def __init__(self, spark: SparkSession, brokers: list[int]) -> None:
        gateway = spark.sparkContext._gateway  # noqa: SLF001 - there is no other way to the process
        assert gateway is not None
        self._jvm: int = gateway.proc.pid
        self._brokers = brokers
        self._pythons: dict[int, float] = {}
        """CPU seconds of each Python process at the last look; of one that has ended they stay."""
        self._compilers: dict[int, float] = {}
        """The same of each thread of the JVM that compiles."""

    def now(self) -> Figures:
        """Seconds since each of them began."""
        for pid in descendants(self._jvm):
            self._pythons[pid] = cpu_seconds(pid, with_ended=False)
        self._compilers.update(compiler_seconds(self._jvm))
        return {
            "jvm": cpu_seconds(self._jvm, with_ended=False),
            "jit": sum(self._compilers.values()),
            "python": sum(self._pythons.values()),
            "here": time.process_time(),
            "broker": sum(map(cpu_seconds, self._brokers)),
            "s": time.perf_counter(),
        }


def since(before: Figures, after: Figures, parts: float = 1) -> Figures:
    """What was used between two readings, for each of so many parts."""
    used = {name: (after[name] - before[name]) / parts for name in after}
    return {"s": used.pop("s"), "spark": used["jvm"] + used["python"], **used}


def compiler_seconds(jvm: int) -> dict[int, float]:
    """CPU seconds of the threads of a JVM that compile, by their numbers."""
    found = {}
    for task in Path(f"/proc/{jvm}/task").iterdir():
        with suppress(OSError):
            head, _, fields = (task / "stat").read_text(encoding="utf-8").rpartition(")")
            if head.partition("(")[2].startswith(("C1 Compiler", "C2 Compiler")):
                found[int(task.name)] = sum(map(int, fields.split()[11:13])) / TICKS
    return found


class Table:
    """Figures by row, and what is printed of them: the least and the median of all rounds."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Figures]] = defaultdict(list)

    def add(self, row: str, figures: Figures) -> None:
        """Take the figures of one round."""
        self._seen[row].append(figures)
        print(f"    {row}: {_words(figures)}", file=sys.stderr, flush=True)

    def show(self, title: str, scale: float = 1.0) -> None:
        """Print both; where rows come as `X tandem` and `X kafka`, their ratios as well."""
        for word, middle in (("least", min), ("median", statistics.median)):
            print(f"\n{title}; the {word} of the rounds")
            of_rows = {row: _middles(found, middle) for row, found in self._seen.items()}
            for row, figures in of_rows.items():
                print(f"  {row:32} {_words(figures, scale)}")
            for row, figures in of_rows.items():
                other = of_rows.get(row.removesuffix("tandem") + "kafka")
                if row.endswith("tandem") and other is not None:
                    ratios = {n: v / other[n] for n, v in figures.items() if other.get(n)}
                    print(f"  {row.removesuffix(' tandem') + ', ratio':32} {_words(ratios)}")
        sys.stdout.flush()


def _words(figures: Figures, scale: float = 1.0) -> str:
    return "  ".join(f"{name} {value * scale:.4g}" for name, value in figures.items())


def _middles(found: list[Figures], middle: Callable[[list[float]], float]) -> Figures:
    names = {name for figures in found for name in figures}
    return {
        name: middle([each[name] for each in found if name in each])
        for name in sorted(names, key=list(found[0]).index)
    }


# --- the parts --------------------------------------------------------------------------------


class Run:
    """All that is measured in one session."""

    def __init__(
        self,
        spark: SparkSession,
        sides: list[Side],
        jars: str,
        given: argparse.Namespace,
    ) -> None:
        self.spark = spark
        self.sides = sides
        self.both = [side for side in sides if side.broker is not None]
        self.jars = jars
        self.rounds: int = given.rounds
        self.batches_of = {**BATCHES, **({FEW: tuple(given.batches)} if given.batches else {})}
        self.meter = Meter(spark, [side.broker for side in sides if side.broker is not None])

    def starts(self, topics: dict[str, str]) -> None:
        """Start sessions in processes of their own: bare, ours, Kafka's."""
        table = Table()
        for number in range(self.rounds + 1):
            for side in self.sides:
                kind = side.name
                command = [sys.executable, str(START), kind, side.servers, topics.get(kind, "")]
                command.append(self.jars if kind == "kafka" else "")
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found = json.loads(out.splitlines()[-1])
                if number:
                    for what, figures in found.items():
                        table.add(f"{what} {kind}", figures)
        table.show("start: seconds from the first import of a program on")

    def streams(self, topics: dict[str, str], sizes: list[int], sinks: list[str]) -> None:
        """Micro-batches of two sizes into two sinks."""
        for rows in sizes:
            for sink in sinks:
                table = Table()
                for number in range(self.rounds + 1):
                    for side in self.sides:
                        found = self._stream(side, topics.get(side.name, ""), rows, sink)
                        if number:
                            table.add(f"{rows:,} rows, {sink} {side.name}", found)
                table.show("stream: a micro-batch, in ms", 1000)

    def _stream(self, side: Side, topic: str, rows: int, sink: str) -> Figures:
        source = self.spark.readStream.format(side.format).options(**side.reading(topic))
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
        if side.name == "bare":
            limits = {"rowsPerBatch": str(rows)}
        writer = source.options(**limits).load().writeStream
        if sink == "noop":
            writer = writer.format("noop")
        else:
            writer = writer.foreachBatch(lambda frame, _: print(end=" " * (frame.count() < 0)))
        return self._micro_batches(writer, *self.batches_of[rows])

    def _micro_batches(self, writer: Any, warm: int, counted: int) -> Figures:  # noqa: ANN401
        with tempfile.TemporaryDirectory() as checkpoint:
            query = writer.option("checkpointLocation", checkpoint).start()
            try:
                self._wait_for(query, Path(checkpoint, "commits", str(warm - 1)))
                before = self.meter.now()
                self._wait_for(query, Path(checkpoint, "commits", str(warm + counted - 1)))
                used = since(before, self.meter.now(), counted)
                pause(0.05)
                progress = [p for p in query.recentProgress if 0 <= p.batchId - warm < counted]
            finally:
                query.stop()
        spans = {
            f".{name}": statistics.median(p.durationMs.get(name, 0) / 1000 for p in progress)
            for name in OF_BATCHES
        }
        return {**used, **spans}

    @staticmethod
    def _wait_for(query: Any, path: Path) -> None:  # noqa: ANN401
        end = time.monotonic() + WAIT_SECONDS_MAX
        looked_at = time.monotonic()
        while not path.exists():
            pause(LOOK_SECONDS)
            if time.monotonic() - looked_at > 1:  # each look at the query costs its JVM time
                looked_at = time.monotonic()
                if not query.isActive or looked_at > end:
                    raise SystemExit(f"the stream has no batch {path.name}: {query.exception()}")

    def batches(self, topics: dict[str, str]) -> None:
        """All rows, all columns."""
        table = Table()
        for number in range(self.rounds + 1):
            for side in self.both:
                frame = (
                    self.spark.read.format(side.name)
                    .options(**side.reading(topics[side.name]))
                    .load()
                )
                before = self.meter.now()
                frame.write.format("noop").mode("overwrite").save()
                if number:
                    table.add(f"batch {side.name}", since(before, self.meter.now()))
        table.show("batch: all rows, in seconds")

    def sinks(self, topics: Callable[[Side], str], cluster: RunningCluster) -> None:
        """Rows from Spark into a topic, beside our own producers; and small micro-batches."""
        table = Table()
        frame = rows_frame(self.spark, MANY)
        bodies = [bytes(row.body) for row in frame.limit(MANY).collect()]
        for number in range(self.rounds + 1):
            works: dict[str, Callable[[], object]] = {"noop": lambda: _into_noop(frame)}
            for side in self.both:
                writer = as_rows_of(frame, side).write.format(side.name)
                writer = writer.options(**side.writing(topics(side))).mode("append")
                works[f"sink {side.name}"] = writer.save
            topic = topics(self.both[0])
            messages = [tandem.Message(topic, body) for body in bodies]
            works["Producer.send_many"] = lambda: anyio.run(_many, cluster, messages)  # noqa: B023
            works["BlockingProducer.send_batch"] = lambda: _batches(cluster, messages)  # noqa: B023
            for name, work in works.items():
                before = self.meter.now()
                work()
                if number:
                    table.add(name, since(before, self.meter.now(), MANY))
        table.show("sink: a row of 100,000, in microseconds", 1e6)
        small = Table()
        for number in range(self.rounds + 1):
            for side in self.both:
                stream = self.spark.readStream.format("rate-micro-batch")
                rows = as_rows_of(with_bodies(stream.option("rowsPerBatch", FEW).load()), side)
                stream_writer = rows.writeStream.format(side.name)
                stream_writer = stream_writer.options(**side.writing(topics(side)))
                found = self._micro_batches(stream_writer, *self.batches_of[FEW])
                if number:
                    small.add(f"sink, {FEW:,} rows {side.name}", found)
        small.show("sink: a micro-batch, in ms", 1000)


def rows_frame(spark: SparkSession, rows: int) -> DataFrame:
    """Rows with a body."""
    return with_bodies(spark.range(0, rows, 1, 2).withColumnRenamed("id", "value"))


def with_bodies(frame: DataFrame) -> DataFrame:
    """Make bodies of the numbers in `value`."""
    return frame.selectExpr(f"cast(rpad(cast(value as string), {BODY_BYTES}, 'x') as binary) body")


def as_rows_of(frame: DataFrame, side: Side) -> DataFrame:
    """Name the column as its sink wants it."""
    return frame if side.name == "tandem" else frame.withColumnRenamed("body", "value")


def _into_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


async def _many(cluster: RunningCluster, messages: list[tandem.Message]) -> None:
    async with tandem.Producer(cluster.name_servers, "bench", ack=tandem.Ack.ASYNC) as producer:
        await producer.send_many(messages)


def _batches(cluster: RunningCluster, messages: list[tandem.Message]) -> None:
    part = 128 * 1024 // (BODY_BYTES + 80)
    with tandem.BlockingProducer(cluster.name_servers, "bench", ack=tandem.Ack.ASYNC) as producer:
        for at in range(0, len(messages), part):
            producer.send_batch(messages[at : at + part])


def new_topic(spark: SparkSession, cluster: RunningCluster, side: Side) -> str:
    """Make a topic of eight queues or partitions at one of them."""
    topic = cluster.topic(queues=QUEUES)
    if side.name == "kafka":
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Kafka's admin client is in there
        settings = jvm.java.util.HashMap()
        settings.put("bootstrap.servers", side.servers)
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        made = jvm.java.util.ArrayList()
        made.add(getattr(jvm.org.apache.kafka.clients.admin, "NewTopic")(topic, QUEUES, 1))  # noqa: B009
        admin.createTopics(made).all().get()
        admin.close()
    return topic


def filled(spark: SparkSession, cluster: RunningCluster, side: Side, rows: int) -> str:
    """Return a new topic that has so many rows."""
    topic = new_topic(spark, cluster, side)
    frame = as_rows_of(rows_frame(spark, rows), side)
    frame.write.format(side.name).options(**side.writing(topic)).mode("append").save()
    return topic


def main() -> None:
    """Start brokers and a session, fill, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--sizes", type=int, nargs="+", choices=BATCHES, default=[*BATCHES])
    parser.add_argument("--sinks", nargs="+", choices=SINKS, default=[*SINKS])
    parser.add_argument("--batches", type=int, nargs=2, metavar=("WARM", "COUNTED"))
    parser.add_argument("--java-options", default="")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # brokers end with this program
    parts = given.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    try:
        jars = spark_jars()
        with (
            tempfile.TemporaryDirectory() as place,
            running_cluster(Path(place), slaves_count=0, settings=SETTINGS) as cluster,
            kafka_group(Path(place, "kafka"), nodes=1, retained_bytes=-1) as kafka,
        ):
            node = cluster.status()[0].pid
            assert node is not None
            (broker,) = kafka.pids.values()
            both = [
                Side("tandem", ";".join(cluster.name_servers), node),
                Side("kafka", kafka.name_server, broker),
            ]
            sides = [Side("bare", "-"), Side("null", "-"), *both]
            settings = {"spark.driver.extraClassPath": jars}
            spark = local_session(settings=settings, java_options=given.java_options)
            spark.dataSource.register(NullDataSource)
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Spark {spark.version}")
            run = Run(spark, sides, jars, given)
            of_few = {side.name: filled(spark, cluster, side, FEW) for side in both}
            of_all: dict[str, str] = {}
            if {"stream", "batch"} & set(parts):
                of_all = {side.name: filled(spark, cluster, side, given.rows) for side in both}
            if "start" in parts:
                run.starts(of_few)
            if "stream" in parts:
                run.streams(of_all, given.sizes, given.sinks)
            if "batch" in parts:
                run.batches(of_all)
            if "sink" in parts:
                run.sinks(lambda side: new_topic(spark, cluster, side), cluster)
            spark.stop()
    except NotToBeHadError as error:
        raise SystemExit(f"this compares with Kafka, from Maven: {error}") from None


if __name__ == "__main__":
    main()
