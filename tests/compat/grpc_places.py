"""Where RocketMQ's gRPC clients are run: at a proxy before RocketMQ 5.3.3, and at our nodes."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tandem.client import BlockingAdmin, ClientError
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tests.compat.proxy import running_proxy
from tests.compat.targets import OPEN, Guarded, Target, running_target

Kind = Literal["normal", "fifo", "delay", "transaction"]
PlaceName = Literal["real", "classic", "fenced"]
KNOWN_SECONDS_MAX: Final = 60.0
LENGTH_BYTES: Final = 4


class Place(msgspec.Struct, frozen=True):
    """What clients know, `endpoints`, and what those know who make topics and groups."""

    name: PlaceName
    endpoints: str
    target: Target

    def make_topics(self, *names: str, kind: Kind = "normal", queues: int = 2) -> None:
        """Create topics of a type, and wait until routes have them."""
        with BlockingAdmin(self.target.access) as admin:
            for name in names:
                admin.create_topic(name, queue_nums=queues)
                if kind != "normal":
                    admin.alter_topic(name, attributes={"message.type": kind.upper()})
        deadline = time.monotonic() + KNOWN_SECONDS_MAX
        for server in self.target.name_servers.split(";"):
            access = msgspec.structs.replace(self.target.access, name_servers=[server])
            with BlockingAdmin(access) as admin:
                for name in names:
                    while not _has_route(admin, name) and time.monotonic() < deadline:
                        time.sleep(0.1)  # noqa: TID251 - waits for other processes

    def make_group(self, group: str, *, in_order: bool = False, retries: int = 16) -> None:
        """Create a consumer group at the masters."""
        config = {
            "groupName": group,
            "consumeMessageOrderly": in_order,
            "retryMaxTimes": retries,
            "consumeEnable": True,
        }
        with BlockingAdmin(self.target.access) as admin:
            brokers = admin.cluster_info().broker_addr_table.values()
            for broker in brokers:
                _ask(
                    broker.broker_addrs[0],
                    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                    msgspec.json.encode(config),
                )


def _has_route(admin: BlockingAdmin, topic: str) -> bool:
    try:
        admin.topic_route(topic)
    except ClientError:
        return False
    return True


def _ask(address: str, code: int, body: bytes) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(encode_frame(RemotingCommand(code, 1, body=body)))
        connection.settimeout(30)
        frame = connection.makefile("rb")
        length = int.from_bytes(frame.read(LENGTH_BYTES))
        header = frame.read(length)[LENGTH_BYTES:]
    answer: dict[str, Any] = msgspec.json.decode(header)
    assert answer["code"] == 0, answer


@contextmanager
def running_place(
    name: PlaceName, directory: Path, guarded: Guarded = OPEN, **settings: object
) -> Iterator[Place]:
    """Have one up while the block runs; `settings` are a proxy's.

    Raises:
        NotToBeHadError: RocketMQ cannot be fetched.
    """
    with ExitStack() as stack:
        target = stack.enter_context(running_target(name, directory, guarded))
        if name == "real":
            # What it keeps of topics that are not there yet, it would keep for 20 s.
            quick = {"topicRouteServiceCacheRefreshSeconds": 1, "metadataThreadPoolNums": 2}
            proxy = running_proxy(directory, target.name_servers, {**quick, **settings})
            yield Place(name, stack.enter_context(proxy).grpc, target)
        else:
            # Every node is a name server, too, at the same port; the last one is no master.
            yield Place(name, target.name_servers.split(";")[-1], target)
