"""The headers of POP, against what a broker was sent and what it answered."""

import json
from pathlib import Path

import msgspec
import pytest

from tandem.wire import pop_headers
from tandem.wire.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import Header

DATA = Path(__file__).parents[2] / "data/rocketmq-5.3.3/requests/pop-live.json"
LIVE = [each for each in json.loads(DATA.read_text()) if each["code"] > 1000]

HEADERS: dict[int, tuple[type[Header], type[Header] | None]] = {
    RequestCode.POP_MESSAGE: (PopMessageRequestHeader, PopMessageResponseHeader),
    RequestCode.PEEK_MESSAGE: (PeekMessageRequestHeader, PopMessageResponseHeader),
    RequestCode.ACK_MESSAGE: (AckMessageRequestHeader, None),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (
        ChangeInvisibleTimeRequestHeader,
        ChangeInvisibleTimeResponseHeader,
    ),
    RequestCode.NOTIFICATION: (NotificationRequestHeader, NotificationResponseHeader),
    RequestCode.POLLING_INFO: (PollingInfoRequestHeader, PollingInfoResponseHeader),
}


def fields_of(text: str) -> dict[str, str]:
    return dict(each.partition("=")[::2] for each in text.split(", "))


@pytest.mark.parametrize("live", [each for each in LIVE if each["code"] in HEADERS])
def test_a_request_is_read_and_written_as_rocketmq_writes_it(live: dict[str, str]) -> None:
    fields = fields_of(live["ext"])
    header = RemotingCommand(code=int(live["code"]), ext=fields).decode_header(
        HEADERS[int(live["code"])][0]
    )
    assert RemotingCommand(code=1, ext=header).ext_fields() == fields


@pytest.mark.parametrize(
    "live", [each for each in LIVE if each["code"] in HEADERS and each["respExt"]]
)
def test_an_answer_is_read_and_written_as_rocketmq_writes_it(live: dict[str, str]) -> None:
    fields = fields_of(live["respExt"])
    kind = HEADERS[int(live["code"])][1]
    assert kind is not None
    header = RemotingCommand(code=0, ext=fields).decode_header(kind)
    assert RemotingCommand(code=1, ext=header).ext_fields() == fields


@pytest.mark.parametrize(
    "header_type",
    [
        header
        for header in vars(pop_headers).values()
        if isinstance(header, type) and issubclass(header, Header) and header is not Header
    ],
)
def test_every_default_of_a_header_is_none_since_defaults_are_left_out(
    header_type: type[Header],
) -> None:
    for field in msgspec.structs.fields(header_type):
        assert field.default in (msgspec.NODEFAULT, None)
