import pytest

from node.handlers.settled import answer_when_settled
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker, Client


class LateTables:
    """Settles when the test says so."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def when_settled(self, deadline: float, done: object) -> None:
        self.done.append(done)


@pytest.mark.parametrize(
    ("trouble", "code"), [(None, ResponseCode.SUCCESS), ("nobody knows", ResponseCode.SYSTEM_ERROR)]
)
async def test_the_answer_is_owed_until_the_change_is_settled(
    trouble: str | None, code: ResponseCode
) -> None:
    broker, tables = Broker(), LateTables()
    client = Client({}, broker.outbox)
    command = RemotingCommand(25, 7)
    answer_when_settled(tables, client.connection, command, 3.0)  # type: ignore[arg-type]
    assert client.answers() == []
    assert client.connection.is_busy
    tables.done[0](trouble)  # type: ignore[operator]
    (answer,) = client.answers()
    assert (answer.opaque, answer.code, answer.remark) == (7, code, trouble)
    assert not client.connection.is_busy


async def test_a_one_way_change_is_owed_and_not_answered() -> None:
    broker = Broker()
    client = Client({}, broker.outbox)
    command = RemotingCommand(25, 7, ONEWAY_FLAG)
    answer_when_settled(broker.tables, client.connection, command, 3.0)
    assert client.answers() == []
    assert not client.connection.is_busy
