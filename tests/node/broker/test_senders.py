"""Replies and recalls through whole nodes: the settings reach their handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tandem.wire.reply_headers import RecallMessageRequestHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tests.node.world import MASTER, cluster_config, open_world

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

REPLY = SendMessageRequestHeaderV2(
    "PG", "DefaultCluster_REPLY_TOPIC", "TBW102", 4, 0, 0, 1, 0, "REPLY_TO_CLIENT\x01c\x02"
)


@pytest.mark.parametrize(("enabled", "code"), [(False, 16), (True, 17)])
async def test_the_settings_of_the_cluster_file_decide(
    tmp_path: Path, autojump_clock: MockClock, *, enabled: bool, code: int
) -> None:
    config = cluster_config(tmp_path, role="ASYNC_MASTER")
    broker = msgspec.structs.replace(
        config.broker, recall_message_enable=enabled, store_reply_message_enable=enabled
    )
    cluster = config.cluster.name
    async with open_world(msgspec.structs.replace(config, broker=broker)) as world:
        await world.start("a0")
        async with world.client(MASTER) as client:
            answer = await client.call(
                RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader("Unknown", "x")
            )
            assert answer.code == code
            header = msgspec.structs.replace(REPLY, topic=f"{cluster}_REPLY_TOPIC")
            answer = await client.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"reply")
            assert (answer.code, answer.remark) == (
                1,
                "push reply message fail, channel of <c> not found.",
            )
            assert (answer.ext_fields()["msgId"] != "0") is enabled
