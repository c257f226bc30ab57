"""Two brokers that answer an administrator as they are told to: `broker-a` has a slave."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import msgspec

from tandem.client.admin_calls import AdminCalls
from tandem.client.core import ClientCore
from tandem.client.group_admin import GroupAdministration
from tandem.client.message_admin import MessageAdministration
from tandem.client.topic_admin import TopicAdministration
from tandem.wire.message import MessageExt, encode_record
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import MessageQueueBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import BrokerData, ClusterInfo, TopicList, encode_json_body
from tandem.wire.stats_requests import queue_map
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    OTHER_MASTER,
    SLAVE,
    FakeBroker,
    HandShell,
    answer_to,
)

INFO = ClusterInfo(
    {
        "broker-a": BrokerData(broker_name="broker-a", broker_addrs={0: MASTER, 1: SLAVE}),
        "broker-b": BrokerData(broker_name="broker-b", broker_addrs={0: OTHER_MASTER}),
    },
    {"DefaultCluster": ["broker-a", "broker-b"]},
)
NAMES = {MASTER: "broker-a", SLAVE: "broker-a", OTHER_MASTER: "broker-b"}


class Answer(Protocol):
    """Gets a request, and the broker name that it is for."""

    def __call__(self, request: RemotingCommand, /, name: str) -> RemotingCommand: ...


class AdminBench:
    """`answer(code, make)`: `make` gets a request and the broker name that it is for."""

    def __init__(self, secret: str = "") -> None:
        names = FakeBroker()
        self.brokers = {address: FakeBroker() for address in NAMES}
        self.shell = HandShell({NAME_SERVER: names, **self.brokers})
        names.handlers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: answer_to(
            request, body=encode_json_body(INFO)
        )
        names.handlers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = lambda request: answer_to(
            request, body=encode_json_body(TopicList(["T", "%RETRY%g", "TBW102", "broker-a"]))
        )
        names.handlers[RequestCode.DELETE_TOPIC_IN_NAMESRV] = answer_to
        self.calls = AdminCalls(
            ClientCore(NAME_SERVER, identity=IDENTITY, clock=self.shell.clock), secret
        )
        self.topics = TopicAdministration(self.calls)
        self.groups = GroupAdministration(self.calls, self.topics)
        self.messages = MessageAdministration(self.calls, self.topics, self.groups)
        self.run = self.shell.run

    def answer(self, code: int, make: Answer) -> None:
        for address, broker in self.brokers.items():
            broker.handlers[code] = partial(make, name=NAMES[address])

    def bodies(self, code: int, make: Callable[[str], msgspec.Struct]) -> None:
        """Answer a code with a record for each broker name."""
        self.answer(
            code, lambda request, name: answer_to(request, body=encode_json_body(make(name)))
        )

    def refuse(self, code: int, refusal: ResponseCode) -> None:
        self.answer(code, lambda request, name: answer_to(request, refusal, remark="no"))

    def requests(self, code: int) -> list[tuple[str, RemotingCommand]]:
        """Return what was asked of whom, in order of the brokers."""
        return [
            (address, request)
            for address, broker in self.brokers.items()
            for request in broker.requests
            if request.code == code
        ]


def by_queue(
    name: str, entries: Iterable[tuple[int, msgspec.Struct]], topic: str = "T"
) -> msgspec.Raw:
    """Return a map by queue of one broker, as Java writes it."""
    return queue_map(
        (MessageQueueBody(name, queue_id, topic), value) for queue_id, value in entries
    )


def records(request: RemotingCommand, *messages: MessageExt) -> RemotingCommand:
    """Return an answer with these messages, or that there are none."""
    if not messages:
        return answer_to(request, ResponseCode.QUERY_NOT_FOUND)
    return answer_to(request, body=b"".join(map(encode_record, messages)))
