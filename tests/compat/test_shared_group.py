"""One group with a member in Java and one in Python, at RocketMQ's broker and at ours."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread  # noqa: TID251 - reads what another process prints
from typing import Any, Final

import pytest

import tandem
from tests.compat.conftest import StartJava
from tests.compat.programs import NotToBeHadError
from tests.compat.targets import TARGET_NAMES, running_target
from tests.support.patience import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.xdist_group("rocketmq")]

QUEUES: Final = 4
COUNT: Final = 400


@pytest.fixture(scope="module", params=TARGET_NAMES)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("target")
    try:
        with running_target(request.param, directory) as target:
            yield target.name_servers
    except NotToBeHadError as error:
        pytest.skip(str(error))


class JavaMember:
    """What the program has printed: (queue, number) of each message, in the order of handling."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.handled: list[tuple[int, int]] = []
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            queue, number = line.split()
            self.handled.append((int(queue), int(number)))

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0


class PythonMember:
    """The same of a member in a thread of this process."""

    def __init__(self, consumer: Any, topic: str) -> None:  # noqa: ANN401
        self.handled: list[tuple[int, int]] = []
        self.consumer = consumer
        messages = consumer.subscribe(topic)
        Thread(target=self._handle, args=(messages,), daemon=True).start()

    def _handle(self, messages: Any) -> None:  # noqa: ANN401
        for message in messages:
            self.handled.append((message.queue_id, int(message.body)))


def send(servers: str, topic: str, numbers: range) -> None:
    with tandem.BlockingProducer(servers, "shared-producer") as producer:
        for number in numbers:
            message = tandem.Message(topic, b"%d" % number)
            result = producer.send(message, sharding_key=f"key {number % 16}")
            assert result.status is tandem.SendStatus.SEND_OK


@pytest.mark.parametrize("way", ["concurrent", "orderly"])
def test_java_and_python_share_a_group_and_python_takes_over(
    servers: str, start_java: StartJava, way: str
) -> None:
    topic, group = f"SharedBy-{way}", f"shared-by-{way}"
    with tandem.BlockingAdmin(servers) as admin:
        admin.create_topic(topic, queue_nums=QUEUES)
    java = JavaMember(start_java("SharedProbe", servers, group, topic, way))
    with tandem.BlockingConsumer(servers, group, orderly=way == "orderly") as consumer:
        python = PythonMember(consumer, topic)
        wait_until(lambda: sum(each.topic == topic for each in consumer.assignment) == QUEUES // 2)
        send(servers, topic, range(COUNT))

        def all_handled(numbers: range) -> bool:
            seen = {number for _, number in [*java.handled, *python.handled]}
            return seen >= set(numbers)

        wait_until(lambda: all_handled(range(COUNT)))
        queues = [{queue for queue, _ in member.handled} for member in (java, python)]
        assert [len(each) for each in queues] == [2, 2]
        assert not queues[0] & queues[1]
        assert len(java.handled) + len(python.handled) == COUNT
        java.leave()
        wait_until(lambda: sum(each.topic == topic for each in consumer.assignment) == QUEUES)
        send(servers, topic, range(COUNT, 2 * COUNT))
        wait_until(lambda: all_handled(range(2 * COUNT)))
        assert {queue for queue, _ in python.handled} == set(range(QUEUES))
        again = {*java.handled} & {*python.handled}
        assert len(java.handled) + len(python.handled) == 2 * COUNT + len(again)
        # Java reports its last offsets on the way out; who takes over may ask before that.
        assert len(again) < COUNT // 10
    if way == "orderly":
        for member in (java, python):
            for key in range(16):
                of_key = [number for _, number in member.handled if number % 16 == key]
                assert of_key == sorted(of_key)
