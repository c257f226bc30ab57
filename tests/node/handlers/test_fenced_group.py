from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ha.results import Refusal
from tandem.coordinator.interface import CoordinatorUnavailableError
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.remoting_command import ONEWAY_FLAG
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CreateTopicRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.node.fenced_doubles import STATUS, FakeReplica, FencedClient
from tests.node.tables.journal.journal_world import offsets_of, topics_of

UPDATE = RequestCode.UPDATE_CONSUMER_OFFSET
QUERY = RequestCode.QUERY_CONSUMER_OFFSET
COMMIT_42 = UpdateConsumerOffsetRequestHeader("g", "T", 2, 42)
ASK = QueryConsumerOffsetRequestHeader("g", "T", 2)
NEW_TOPIC = CreateTopicRequestHeader("New", "TBW102", 2, 2, 6, "SINGLE_TAG", 0, order=False)


@asynccontextmanager
async def open_client(replica: FakeReplica | None = None) -> AsyncIterator[FencedClient]:
    async with trio.open_nursery() as nursery:
        client = FencedClient(replica or FakeReplica(), nursery)
        client.open()
        yield client
        nursery.cancel_scope.cancel()


async def test_a_commit_is_answered_when_it_is_confirmed() -> None:
    async with open_client() as client:
        client.send(UPDATE, COMMIT_42)
        assert client.answers() == []
        assert client.connection.owed_count == 1
        client.confirm()
        assert [answer.code for answer in client.answers()] == [0]
        assert client.connection.owed_count == 0
        answer = client.call(QUERY, ASK)
        assert answer.decode_header(OffsetResponseHeader).offset == 42


async def test_an_offset_that_is_not_confirmed_is_not_told() -> None:
    async with open_client() as client:
        client.send(UPDATE, COMMIT_42)
        assert client.call(QUERY, ASK).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_one_way_commit_is_gathered(autojump_clock: MockClock) -> None:
    async with open_client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.journal.run, client.journal.end_round)
        client.send(UPDATE, COMMIT_42, flag=ONEWAY_FLAG)
        await trio.sleep(0.2)
        client.confirm()
        assert offsets_of(client.journal.applier.tables) == {"T@g": {2: 42}}
        assert client.answers() == []
        nursery.cancel_scope.cancel()


async def test_a_commit_for_no_queue_is_refused() -> None:
    async with open_client() as client:
        nowhere = UpdateConsumerOffsetRequestHeader("g", "T", 99, 42)
        assert client.call(UPDATE, nowhere).code == ResponseCode.INVALID_PARAMETER


async def test_nobody_but_the_master_takes_or_tells_offsets() -> None:
    replica = FakeReplica()
    async with open_client(replica) as client:
        replica.demote("a1 is the master, at 10.0.0.2:10911")
        for code, header in ((UPDATE, COMMIT_42), (QUERY, ASK)):
            answer = client.call(code, header)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "a1 is the master, at 10.0.0.2:10911" in (answer.remark or "")


async def test_a_master_short_of_replicas_takes_no_offset_but_tells_those_it_has() -> None:
    replica = FakeReplica()
    async with open_client(replica) as client:
        client.send(UPDATE, COMMIT_42)
        client.answers()
        client.confirm()
        client.answers()
        replica.refused = Refusal(1, "1 of 2 replicas live", is_short=True)
        assert client.call(QUERY, ASK).code == 0
        refused = client.call(UPDATE, UpdateConsumerOffsetRequestHeader("g", "T", 2, 43))
        assert refused.remark == "1 of 2 replicas live"


async def test_a_pulls_commit_is_taken_by_the_master_and_ignored_by_others() -> None:
    async with open_client() as client:
        writer, client.journal.writer = client.journal.writer, None
        client.tables.commit("g", "T", 0, 5)
        client.journal.writer = writer
        client.tables.commit("g", "T", 1, 6)
        client.send(UPDATE, COMMIT_42)
        client.answers()
        client.confirm()
        assert offsets_of(client.journal.applier.tables) == {"T@g": {1: 6, 2: 42}}


async def test_a_topic_is_answered_when_it_is_confirmed() -> None:
    async with open_client() as client:
        client.send(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC)
        assert client.answers() == []
        client.confirm()
        assert [answer.code for answer in client.answers()] == [0]
        assert "New" in topics_of(client.journal.applier.tables)


async def test_a_topic_is_not_changed_by_whom_a_message_would_be_refused() -> None:
    replica = FakeReplica()
    async with open_client(replica) as client:
        replica.demote("the lease is over")
        answer = client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC)
        assert answer.remark == "the lease is over"


async def test_a_change_not_confirmed_in_time_is_answered_with_what_is_known(
    autojump_clock: MockClock,
) -> None:
    async with open_client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.journal.run, client.journal.end_round)
        client.send(UPDATE, COMMIT_42)
        client.answers()
        await trio.sleep(3.1)
        (answer,) = client.answers()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        nursery.cancel_scope.cancel()


async def test_the_status_is_told_as_json() -> None:
    async with open_client() as client:
        answer = client.call(RequestCode.FENCED_STATUS)
        assert msgspec.json.decode(answer.body, type=FencedStatus) == STATUS


async def test_an_order_is_answered_when_it_is_carried_out() -> None:
    replica = FakeReplica()
    async with open_client(replica) as client:
        order = FencedCommand(command="resign")
        client.send(RequestCode.FENCED_COMMAND, body=msgspec.json.encode(order))
        assert client.connection.owed_count == 1
        await trio.testing.wait_all_tasks_blocked()
        (answer,) = client.answers()
        result = msgspec.json.decode(answer.body, type=FencedCommandResult)
        assert result == FencedCommandResult(done=True, text="resigned")
        assert replica.orders == [order]
        assert client.connection.owed_count == 0


@pytest.mark.parametrize(
    "body",
    [
        b'{"command":"dance"}',
        b"",
        b"\xff",
        b'{"command":"resign","node":"\xff"}',
        b'{"command":"resign","other":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"command":"resign","accept_loss":' + b"1" * 5_000 + b"}",
    ],
)
async def test_what_is_no_order_is_refused(body: bytes) -> None:
    async with open_client() as client:
        client.send(RequestCode.FENCED_COMMAND, body=body)
        await trio.testing.wait_all_tasks_blocked()
        (answer,) = client.answers()
        assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_an_order_without_a_coordinator_is_told_as_unknown() -> None:
    replica = FakeReplica()
    replica.error = CoordinatorUnavailableError("no answer")
    async with open_client(replica) as client:
        order = FencedCommand(command="promote", node="a1")
        client.send(RequestCode.FENCED_COMMAND, body=msgspec.json.encode(order))
        await trio.testing.wait_all_tasks_blocked()
        (answer,) = client.answers()
        result = msgspec.json.decode(answer.body, type=FencedCommandResult)
        assert not result.done
        assert "not known" in result.text


async def test_a_bug_in_an_order_is_an_answer_and_ends_no_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replica = FakeReplica()
    replica.error = ZeroDivisionError("a bug of ours")
    async with open_client(replica) as client:
        order = FencedCommand(command="resign")
        client.send(RequestCode.FENCED_COMMAND, body=msgspec.json.encode(order))
        await trio.testing.wait_all_tasks_blocked()
        (answer,) = client.answers()
        result = msgspec.json.decode(answer.body, type=FencedCommandResult)
        assert not result.done
        assert "ZeroDivisionError: a bug of ours" in result.text
        assert any(record.exc_info for record in caplog.records)


async def test_the_tables_are_told_to_slaves_of_the_classic_kind() -> None:
    async with open_client() as client:
        assert b'"T"' in client.call(RequestCode.GET_ALL_TOPIC_CONFIG).body
        assert b"offsetTable" in client.call(RequestCode.GET_ALL_CONSUMER_OFFSET).body
