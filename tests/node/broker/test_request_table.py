"""One table for both kinds of group: what is in it is served, what is not is refused in words."""

from __future__ import annotations

from node.broker.request_table import request_table
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker, Client, handlers_of


async def test_every_code_of_the_table_is_answered_by_its_handler() -> None:
    """An empty request is refused by a handler, never as an unknown one."""
    broker = Broker()
    table = request_table(handlers_of(broker))
    client = Client(table, broker.outbox)
    for code in table:
        answer = client.call(code)
        assert answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED, RequestCode(code).name


async def test_another_code_is_refused_in_words() -> None:
    broker = Broker()
    answer = Client(request_table(handlers_of(broker)), broker.outbox).call(999)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "999" in str(answer.remark)
