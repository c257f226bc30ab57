"""Fake brokers, a fake clock and the options of a source, for tests of the live source."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from tandem.client import BlockingProducer, blocking_shell
from tandem.client.core import ClientCore
from tandem.client.results import MessageQueue
from tandem.spark.live.offsets import Offsets
from tandem.spark.live.options import LiveOptions, parse_options
from tandem.testing import RunningCluster
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import PullMessageRequestHeader
from tests.support.patience import ATTEMPT_MS, PATIENCE_MS
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    SLAVE,
    FakeBroker,
    FakeSockets,
    message_ext,
)

TOPIC = "orders"


def counting_producer(node: RunningCluster) -> BlockingProducer:
    """A producer to a real node that sends nothing again because the machine is busy."""
    return BlockingProducer(
        node.name_servers,
        group="p",
        send_msg_timeout_ms=PATIENCE_MS,
        attempt_timeout_ms=ATTEMPT_MS,
    )


class FakeTime:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class LiveWorld:
    """A name server, and a master and a slave that have the same messages."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.name_server, self.master, self.slave = FakeBroker(), FakeBroker(), FakeBroker()
        self.slave.queues = self.master.queues
        self.sockets = FakeSockets(
            {NAME_SERVER: self.name_server, MASTER: self.master, SLAVE: self.slave}
        )

    def core(self) -> ClientCore:
        return ClientCore(NAME_SERVER, identity=IDENTITY, clock=self.time.monotonic)

    def fill(self, queue_id: int, count: int, topic: str = TOPIC) -> None:
        queue = self.master.queues.setdefault((topic, queue_id), [])
        for _ in range(count):
            offset = len(queue)
            body = b"message %d" % offset
            message = message_ext(body, topic=topic, queue_id=queue_id, queue_offset=offset)
            queue.append(message)


@contextmanager
def live_world() -> Iterator[LiveWorld]:
    with pytest.MonkeyPatch.context() as patch:
        world = LiveWorld()
        patch.setattr(blocking_shell, "time", world.time)
        yield world


def queue(queue_id: int = 0, broker_name: str = "broker-a", topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, broker_name, queue_id)


def options(**given: str) -> LiveOptions:
    raw = {"nameServers": NAME_SERVER, "subscribe": TOPIC} | given
    return parse_options({name.lower(): value for name, value in raw.items()})


def assigned(assign: str, **given: str) -> LiveOptions:
    raw = {"nameServers": NAME_SERVER, "assign": assign} | given
    return parse_options({name.lower(): value for name, value in raw.items()})


def pull_of(request: RemotingCommand) -> PullMessageRequestHeader:
    return request.decode_header(PullMessageRequestHeader)


class Asked:
    """Queues with a first offset and an end."""

    def __init__(self, **ends: int) -> None:
        self.ends = {queue(int(name[1:])): end for name, end in ends.items()}
        self.firsts: Offsets = {}
        self.questions = 0

    def queues(self, *, unknown_is_error: bool) -> dict[MessageQueue, str]:
        assert isinstance(unknown_is_error, bool)
        return dict.fromkeys(self.ends, "cluster-a")

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        return {each: self.firsts.get(each, 0) for each in queues}

    def max_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        self.questions += 1
        return {each: self.ends[each] for each in queues if each in self.ends}

    def offsets_at(self, queues: Iterable[MessageQueue], time_ms: int) -> Offsets:
        return dict.fromkeys(queues, time_ms)
