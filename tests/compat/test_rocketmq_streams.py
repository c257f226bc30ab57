"""rocketmq-streams 1.1.0 counts words at RocketMQ's broker and at ours, and goes on where it was.

Its counts are in a directory of each process, and in a topic of the broker. So a process that comes
after another one, which was stopped or killed, has them from the topic alone.
"""

import random
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec
import pytest

import tandem
from tests.compat.conftest import StartJava
from tests.compat.programs import NotToBeHadError, classpath
from tests.compat.targets import TARGET_NAMES, Target, running_target
from tests.support.patience import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), pytest.mark.xdist_group("rocketmq")]

WORDS: Final = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
LINES: Final = 6
WORDS_OF_A_LINE: Final = 3
QUEUES: Final = 4
ATTEMPTS: Final = 6
LENGTHS: Final = struct.Struct(">ii")
StateTopic = Literal["static", "compacted"]
Way = Literal["stopped", "killed"]


@pytest.fixture(scope="module")
def streams_classpath() -> str:
    """The jars of rocketmq-streams; skips where they cannot be fetched."""
    try:
        return classpath("streams1.xml")
    except NotToBeHadError as error:
        pytest.skip(f"rocketmq-streams cannot be fetched: {error}")


@pytest.fixture(scope="module", params=TARGET_NAMES)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    try:
        with running_target(request.param, tmp_path_factory.mktemp("target")) as target:
            yield target
    except NotToBeHadError as error:
        pytest.skip(str(error))


class StreamDiedError(Exception):
    """The stream has given up: its client waits a second for some answers."""


class Count:
    """One job: what it was given, its processes, and what it made of that."""

    def __init__(self, target: Target, job: str, start_java: StartJava, jars: str) -> None:
        self.lines, self.counts = f"{job}-lines", f"{job}-counts"
        self.shuffle = f"{job}-ROCKETMQ-GROUPBY-COUNT-0000000004-shuffleTopic"
        self.state = f"{self.shuffle}-stateTopic"
        self._job = job
        self.given: Counter[str] = Counter()
        self._target = target
        self._start_java = start_java
        self._jars = jars
        self._random = random.Random(job)
        self._process: subprocess.Popen[str] | None = None
        with tandem.BlockingAdmin(target.name_servers) as admin:
            for topic in (self.lines, self.counts):
                admin.create_topic(topic, queue_nums=QUEUES)

    def create_compacted(self) -> None:
        """Make its two topics, that of its state a compaction topic; else it makes static ones."""
        compacted = {"cleanup.policy": "COMPACTION"}
        with tandem.BlockingAdmin(self._target.name_servers) as admin:
            admin.create_topic(self.shuffle, queue_nums=QUEUES)
            admin.create_topic(self.state, queue_nums=QUEUES, attributes=compacted)

    def begin(self, log: Path) -> None:
        """Have its topics made, and its group at their beginning.

        Its client asks where an empty queue ends that its group has no offset of, and begins there:
        what came meanwhile would be left out, at every broker.

        Raises:
            StreamDiedError: Its process has ended.
        """
        self.start(log)
        wait_until(lambda: self.is_alive() and {self.shuffle, self.state} <= self.topics)
        self.stop()
        with tandem.BlockingPullConsumer(self._target.name_servers, self._group) as consumer:
            for queue in self._queues(consumer):
                consumer.update_consume_offset(queue, 0)

    def start(self, log: Path) -> None:
        """Begin a process, which has nothing from others.

        Raises:
            StreamDiedError: It ended before it began.
        """
        self._process = self._start_java(
            *("StreamsProbe", self._target.name_servers, self._job, self.lines, self.counts),
            classpath=self._jars,
            options=(
                f"-Dshuffle_topic_queue_num={QUEUES}",
                f"-Djava.io.tmpdir={log.parent}",
            ),
            log_file=log,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "started\n":
            self._process.wait()
            raise StreamDiedError

    def is_alive(self) -> bool:
        """True.

        Raises:
            StreamDiedError: Its process has ended.
        """
        assert self._process is not None
        if self._process.poll() is not None:
            raise StreamDiedError
        return True

    def stop(self) -> None:
        assert self._process is not None
        said, _ = self._process.communicate(timeout=PATIENCE_SECONDS)
        assert (said, self._process.returncode) == ("stopped\n", 0)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        for left in Path("/tmp/rocksdb").glob(f"*/{self._process.pid}"):
            shutil.rmtree(left)

    def send(self) -> None:
        """Give it more lines."""
        with tandem.BlockingProducer(self._target.name_servers, "lines") as producer:
            for _ in range(LINES):
                words = self._random.choices(WORDS, k=WORDS_OF_A_LINE)
                self.given.update(words)
                result = producer.send(tandem.Message(self.lines, " ".join(words).encode()))
                assert result.status is tandem.SendStatus.SEND_OK

    @property
    def topics(self) -> set[str]:
        """All topics of the broker."""
        with tandem.BlockingAdmin(self._target.name_servers) as admin:
            return set(admin.topics())

    def read(self, topic: str) -> list[tuple[int, bytes]]:
        """All messages of a topic, each with its queue."""
        with tandem.BlockingPullConsumer(self._target.name_servers, "judge") as consumer:
            return [
                (message.queue_id, message.body)
                for queue in consumer.fetch_message_queues(topic)
                for message in _all_of(consumer, queue)
            ]

    def said(self) -> dict[str, list[int]]:
        """The counts of each word, in the order of their messages."""
        found: dict[str, list[int]] = {}
        for _, body in self.read(self.counts):
            word, count = body.decode().split()
            found.setdefault(word, []).append(int(count))
        return found

    def kept(self) -> dict[str, int]:
        """The last count of each word in the topic of its state."""
        found = {}
        for _, body in self.read(self.state):
            key_bytes, value_bytes = LENGTHS.unpack_from(body)
            end = LENGTHS.size + key_bytes
            word = msgspec.json.decode(_json_of(body[LENGTHS.size : end]), type=str)
            found[word] = int(_json_of(body[end : end + value_bytes]))
        return found

    @property
    def _group(self) -> str:
        return f"{self._job}_rocketmq_streams_consumer_group"

    def _queues(self, consumer: tandem.BlockingPullConsumer) -> list[tandem.MessageQueue]:
        """The queues that it reads."""
        topics = (self.lines, self.shuffle)
        return [queue for topic in topics for queue in consumer.fetch_message_queues(topic)]

    def is_committed(self) -> bool:
        """Whether its group is at the end of all that it reads."""
        with tandem.BlockingPullConsumer(self._target.name_servers, self._group) as consumer:
            return all(
                consumer.fetch_consume_offset(queue) == consumer.max_offset(queue)
                for queue in self._queues(consumer)
            )

    def has_counted(self) -> bool:
        """Whether it has done with everything that it was given, right or wrong.

        Raises:
            StreamDiedError: Its process has ended.
        """
        return (
            self.is_alive()
            and self.is_committed()
            and len(self.read(self.counts)) >= self.given.total()
        )

    def complaint(self) -> str:
        """What is wrong with its counts, or with those that it keeps; empty if nothing is."""
        expected = {word: [*range(1, n + 1)] for word, n in self.given.items()}
        if (said := self.said()) != expected:
            return f"it said {said}"
        return "" if (kept := self.kept()) == self.given else f"it kept {kept}"


def _json_of(value: bytes) -> bytes:
    """What comes after the name of the class."""
    size = int.from_bytes(value[:4], "big")
    return value[8 + size :]


def _all_of(
    consumer: tandem.BlockingPullConsumer, queue: tandem.MessageQueue
) -> Iterable[tandem.MessageExt]:
    offset = consumer.min_offset(queue)
    while offset < consumer.max_offset(queue):
        result = consumer.pull(queue, offset)
        yield from result.messages
        offset = result.next_begin_offset


def journey(count: Count, way: Way, logs: Path) -> str:
    """Stop or kill it, and have it go on; return what was wrong, if anything was."""
    try:
        count.begin(logs / "begin.log")
        for number, end in enumerate((count.stop if way == "stopped" else count.kill, count.stop)):
            count.start(logs / f"{number}.log")
            count.send()
            wait_until(count.has_counted)
            end()
            if complaint := count.complaint():
                return f"process {number}: {complaint}"
    except StreamDiedError:
        return "it died"
    return ""


@pytest.mark.parametrize("state_topic", get_args(StateTopic))
@pytest.mark.parametrize("way", get_args(Way))
def test_counts_go_on(
    target: Target,
    start_java: StartJava,
    streams_classpath: str,
    tmp_path: Path,
    way: Way,
    state_topic: StateTopic,
) -> None:
    """RocketMQStore.loadState, persist; RocketMQUtil.createStaticTopic, createStaticCompactTopic.

    The library takes 50 ms without a message for the end of its state, and gives up when an answer
    takes a second. So on a busy machine it has several attempts, each with topics of its own.
    """
    went = []
    for attempt in range(ATTEMPTS):
        count = Count(target, f"{way}-{state_topic}{attempt}", start_java, streams_classpath)
        if state_topic == "compacted":
            count.create_compacted()
        logs = tmp_path / str(attempt)
        logs.mkdir()
        went.append(journey(count, way, logs))
        if not went[-1]:
            return
    pytest.fail("\n".join(went))
