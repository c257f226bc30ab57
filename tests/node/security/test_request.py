"""Declarations of requests: each code once, with the names that its header has, and served."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec
import pytest

import node.run  # noqa: F401  with it all that declares requests
from node.errors import RequestError
from node.handlers.broker_epoch_cache import BrokerEpochCache
from node.handlers.fenced_group import FencedGroup
from node.handlers.peer_log import PeerLog
from node.name_server.name_server_admin import NameServerAdmin
from node.name_server.topic_route import TopicRoute
from node.security.access import Action, Resource
from node.security.request import (
    REQUESTS,
    handler_table,
    of_cluster,
    of_topic,
    serves,
)
from node.security.seals import Seals
from tandem.wire.access_control import Right
from tandem.wire.errors import WireError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import QueueRequestHeader
from tests.node.doubles import Broker, Client, handlers_of

ACCESS = (Resource.MESSAGES, Action.READ)
T = TypeVar("T", bound=msgspec.Struct)
UNUSED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


@pytest.fixture(autouse=True)
def declarations_are_put_back() -> Iterator[None]:
    before = dict(REQUESTS)
    yield
    REQUESTS.clear()
    REQUESTS.update(before)


def test_a_code_is_handled_in_one_place() -> None:
    def handle() -> None: ...

    with pytest.raises(ValueError, match=r"GET_MAX_OFFSET.*QueueOffset"):
        serves(RequestCode.GET_MAX_OFFSET, ACCESS)(handle)
    serves(UNUSED, ACCESS)(handle)
    serves(UNUSED, ACCESS)(handle)  # the same again: a module that is read twice


def test_a_request_is_about_names_that_its_header_has() -> None:
    with pytest.raises(ValueError, match="consumer_group"):
        serves(UNUSED, ACCESS, of_topic("consumer_group", Right.GET), header=QueueRequestHeader)
    with pytest.raises(ValueError, match="topic"):
        serves(UNUSED, ACCESS, of_topic("topic", Right.GET))


async def test_two_objects_do_not_handle_the_same() -> None:
    families = handlers_of(Broker()).families
    with pytest.raises(ValueError, match="twice"):
        handler_table(*families, families[0])


def test_what_is_inherited_is_handled_once_and_by_the_object_itself() -> None:
    class First:
        @serves(UNUSED, ACCESS, of_cluster(Right.GET))
        def handle(self, connection: object, command: object) -> None: ...

    class Second(First):
        pass

    second = Second()
    assert handler_table(second) == {UNUSED: second.handle}


async def test_each_request_that_is_declared_is_served_by_a_node() -> None:
    broker_codes = set(handler_table(*handlers_of(Broker()).families))
    elsewhere = (TopicRoute, NameServerAdmin, FencedGroup, PeerLog, BrokerEpochCache, Seals)
    names = {(each.__module__, each.__qualname__) for each in elsewhere}
    for code, request in REQUESTS.items():
        module, function = request.handled_by
        assert (code in broker_codes) is not ((module, function.split(".")[0]) in names), request


async def test_a_handler_reads_the_header_that_is_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[type] = []
    decode = RemotingCommand.decode_header

    def noted(command: RemotingCommand, header: type[T]) -> T:
        read.append(header)
        return decode(command, header)

    monkeypatch.setattr(RemotingCommand, "decode_header", noted)
    broker = Broker()
    table = handler_table(*handlers_of(broker).families)
    client = Client(table, broker.outbox)
    for code in table:
        read.clear()
        command = RemotingCommand(code, 1)
        with suppress(WireError, RequestError):
            table[code](client.connection, command)
        header = REQUESTS[code].header
        assert read == ([] if header is None else [header]), RequestCode(code).name
