"""The handlers of a broker: one object each, of its parts and its settings."""

from pathlib import Path

import msgspec
import pytest
from trio.testing import MockClock

from tandem.wire.reply_headers import RecallMessageRequestHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker, Client, FakeReplication, handlers_of, request_table
from tests.node.world import MASTER, cluster_config, open_world


async def test_every_code_is_answered_by_its_handler() -> None:
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


async def test_they_share_what_the_broker_remembers() -> None:
    """A group that one handler registers is known to the others."""
    broker = Broker()
    client = Client(request_table(handlers_of(broker)), broker.outbox, broker.to_clients)
    beat = b'{"clientID":"c1","consumerDataSet":[{"groupName":"g"}]}'
    assert client.call(RequestCode.HEART_BEAT, None, beat).code == 0
    asked = {"consumerGroup": "g"}
    for code in (
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
    ):
        assert b"c1" in client.call(code, asked).body
    assert client.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"}).code == 0


async def test_who_is_not_the_master_takes_no_messages() -> None:
    broker, replication = Broker(), FakeReplication()
    replication.demote("another node is the master")
    client = Client(request_table(handlers_of(broker, replication)), broker.outbox)
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.CONSUMER_SEND_MSG_BACK):
        fields = {"offset": "0", "group": "g", "delayLevel": "0"}
        answer = client.call(code, fields, b'{"clientId":"c","consumerGroup":"g"}')
        assert (answer.code, answer.remark) == (14, "another node is the master")


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
