from __future__ import annotations

from tandem.wire.request_code import RequestCode
from tests.node.doubles import Broker
from tests.node.handlers.inspected import looking_at


async def test_how_far_each_delay_level_is() -> None:
    answer = looking_at(Broker()).call(RequestCode.GET_ALL_DELAY_OFFSET)
    assert answer.body == (
        b'{"dataVersion":{"stateVersion":0,"timestamp":0,"counter":0},"offsetTable":{"3":5}}'
    )
