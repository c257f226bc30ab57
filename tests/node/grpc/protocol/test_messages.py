from typing import Any

import pytest
from google.protobuf import json_format

from node.grpc.protocol import messages as pb
from tests.support.paths import ROOT


def test_codes_have_the_numbers_of_the_protocol() -> None:
    assert (pb.OK, pb.TOPIC_NOT_FOUND, pb.TOO_MANY_REQUESTS) == (20_000, 40_402, 42_900)
    assert pb.ClientType.Name(pb.PUSH_CONSUMER) == "PUSH_CONSUMER"


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        (
            "EndTransactionRequest",
            "0a0612045454584e1222303137374137393032363341433232383830304231384335394430303030303032321a"
            "223031373741373930323633414332323838303042313843353944303030303030323220012801",
            {
                "topic": {"name": "TTXN"},
                "messageId": "0177A790263AC228800B18C59D00000022",
                "transactionId": "0177A790263AC228800B18C59D00000022",
                "resolution": "COMMIT",
                "source": "SOURCE_CLIENT",
            },
        ),
        (
            "EndTransactionResponse",
            "0a0808a09c0112024f4b",
            {"status": {"code": "OK", "message": "OK"}},
        ),
    ],
)
def test_what_rocketmqs_clients_and_its_proxy_have_sent_is_read_and_written_again(
    name: str, data: str, shown: dict[str, Any]
) -> None:
    kind = getattr(pb, name)
    found = kind.FromString(bytes.fromhex(data))
    assert json_format.MessageToDict(found) == shown
    assert found.SerializeToString() == bytes.fromhex(data)


def test_each_message_of_the_stub_is_there() -> None:
    stub = (ROOT / "node" / "grpc" / "protocol" / "messages.pyi").read_text()
    names = [
        line.split("(")[0].removeprefix("class ")
        for line in stub.splitlines()
        if line.startswith("class ")
    ]
    assert len(names) > 60
    assert [name for name in names if not hasattr(pb, name)] == []
