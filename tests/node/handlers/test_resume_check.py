"""What was given up is asked about again, once: a transaction ends once."""

import msgspec
import pytest

from node.security.access import Standing, needed
from node.security.request import REQUESTS
from tandem.wire.admin_headers import ResumeCheckHalfMessageRequestHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
)
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker, Client, FakeReplication
from tests.node.handlers.halves import (
    COMMIT,
    END,
    GIVEN_UP,
    HALF,
    KINDS,
    PREPARED,
    SEND,
    check,
    client_of,
    heartbeat,
    prepare,
    stored,
)

RESUME = RequestCode.RESUME_CHECK_HALF_MESSAGE


def resume(client: Client, msg_id: str | None) -> int:
    return client.call(RESUME, ResumeCheckHalfMessageRequestHeader(msg_id, "T")).code


def another(more: str = "") -> SendMessageRequestHeaderV2:
    """A half of the same key."""
    return msgspec.structs.replace(PREPARED, properties=f"{PREPARED.properties}{more}")


def give_up(broker: Broker, *, is_fenced: bool = False) -> str:
    """Have all halves given up; return the offset id of the newest that was."""
    for _ in range(17):
        check(broker, 30_000)
    if is_fenced:
        broker.store.confirm(broker.store.max_physical_offset)
    return stored(broker, GIVEN_UP)[-1].offset_msg_id


@KINDS
async def test_a_half_that_was_given_up_is_asked_about_again_and_committed(
    is_fenced: bool,  # noqa: FBT001
) -> None:
    broker = Broker(is_fenced=is_fenced)
    client = client_of(broker)
    prepare(client)
    msg_id = give_up(broker, is_fenced=is_fenced)
    heartbeat(client, "c1")
    assert resume(client, msg_id) == 0
    half = stored(broker, HALF)[-1]
    assert half.properties["TRANSACTION_CHECK_TIMES"] == "0"
    assert half.properties["WAIT"] == "false"
    assert (half.body, half.queue_id) == (b"x", 0)
    check(broker)
    (question,) = client.answers()
    asked = question.decode_header(CheckTransactionStateRequestHeader)
    end = EndTransactionRequestHeader(
        "PG",
        asked.tran_state_table_offset,
        asked.commit_log_offset,
        COMMIT,
        from_transaction_check=True,
    )
    assert client.call(END, end).code == 0
    (message,) = stored(broker, "T", 1)
    assert message.body == b"x"


@KINDS
async def test_it_is_resumed_once_and_what_is_given_up_again_is_resumed_again(
    is_fenced: bool,  # noqa: FBT001
) -> None:
    broker = Broker(is_fenced=is_fenced)
    client = client_of(broker)
    prepare(client)
    first = give_up(broker, is_fenced=is_fenced)
    assert resume(client, first) == 0
    halves = len(stored(broker, HALF))
    assert resume(client, first) == ResponseCode.SYSTEM_ERROR
    assert len(stored(broker, HALF)) == halves
    second = give_up(broker, is_fenced=is_fenced)
    assert second != first
    assert resume(client, first) == ResponseCode.SYSTEM_ERROR
    assert resume(client, second) == 0


async def test_another_half_with_the_same_key_is_none_of_its_copies() -> None:
    broker = Broker()
    client = client_of(broker)
    prepare(client)
    first = give_up(broker)
    broker.now_ms += 5
    client.call(SEND, another(), b"y")
    assert resume(client, first) == 0


async def test_an_immune_half_is_no_copy_of_the_one_that_has_ended() -> None:
    broker = Broker()
    client = client_of(broker)
    client.call(SEND, another("CHECK_IMMUNITY_TIME_IN_SECONDS\x0140\x02"), b"x")
    msg_id = give_up(broker)
    assert resume(client, msg_id) == 0
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in stored(broker, HALF)[-1].properties


@pytest.mark.parametrize("msg_id", [None, "", "x", "7F00000100002A9F00000000FFFFFFFF"])
async def test_what_names_no_message_is_refused(msg_id: str | None) -> None:
    assert resume(client_of(Broker()), msg_id) == ResponseCode.SYSTEM_ERROR


async def test_a_message_that_nobody_gave_up_is_refused() -> None:
    broker = Broker()
    client = client_of(broker)
    prepare(client)
    client.call(SEND, another(), b"y")
    (half, _) = stored(broker, HALF)
    assert resume(client, half.offset_msg_id) == ResponseCode.SYSTEM_ERROR
    assert len(stored(broker, HALF)) == 2


async def test_a_node_that_takes_no_puts_resumes_nothing() -> None:
    broker, replication = Broker(), FakeReplication()
    client = client_of(broker, replication)
    prepare(client)
    msg_id = give_up(broker)
    replication.demote("another is master")
    assert resume(client, msg_id) != 0
    replication = FakeReplication()
    assert resume(client_of(broker, replication), msg_id) == 0


def test_operators_alone_may_do_so() -> None:
    assert needed(REQUESTS[RESUME].access) is Standing.OPERATOR
