from __future__ import annotations

import msgspec
import pytest

from node.handlers.admin import Admin
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CreateTopicRequestHeader,
    HARuntimeInfo,
    TopicConfigSerializeWrapper,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body
from tests.node.doubles import Broker, Client

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC

HEADER = CreateTopicRequestHeader(
    topic="New",
    default_topic="TBW102",
    read_queue_nums=2,
    write_queue_nums=3,
    perm=6,
    topic_filter_type="SINGLE_TAG",
    topic_sys_flag=0,
    order=False,
)


def client_of(broker: Broker, *, is_slave: bool = False) -> Client:
    info = HARuntimeInfo(master=True, master_commit_log_max_offset=77)
    admin = Admin(broker.topics, broker.offsets, lambda: info, is_slave=lambda: is_slave)
    handlers = {
        CREATE: admin.create_topic,
        RequestCode.GET_ALL_TOPIC_CONFIG: admin.topic_configs,
        RequestCode.GET_ALL_CONSUMER_OFFSET: admin.consumer_offsets,
        RequestCode.GET_BROKER_HA_STATUS: admin.ha_status,
    }
    return Client({int(code): handle for code, handle in handlers.items()})


async def test_a_topic_is_created_and_changed() -> None:
    broker = Broker()
    client = client_of(broker)
    assert client.call(CREATE, HEADER).code == 0
    config = broker.topics.get("New")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (2, 3, 6)
    changes = broker.topic_changes
    assert client.call(CREATE, HEADER).code == 0
    assert broker.topic_changes == changes
    client.call(CREATE, msgspec.structs.replace(HEADER, perm=4))
    assert broker.topic_changes == changes + 1


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "a b"},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"read_queue_nums": 0},
        {"write_queue_nums": -1},
        {"write_queue_nums": 65_536},
        {"perm": 16},
    ],
)
async def test_a_bad_topic_is_refused(changes: dict[str, object]) -> None:
    broker = Broker()
    answer = client_of(broker).call(CREATE, msgspec.structs.replace(HEADER, **changes))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.get("New") is None


async def test_topics_are_not_created_on_a_slave() -> None:
    answer = client_of(Broker(), is_slave=True).call(CREATE, HEADER)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "from master broker" in str(answer.remark)


async def test_a_slave_can_copy_the_topics() -> None:
    broker = Broker()
    answer = client_of(broker).call(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert decode_json_body(answer.body, TopicConfigSerializeWrapper) == broker.topics.configs
    assert set(msgspec.json.decode(answer.body)) == {
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    }


async def test_a_slave_can_copy_the_offsets() -> None:
    broker = Broker()
    broker.offsets.commit("g", "T", 0, 5)
    answer = client_of(broker).call(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert msgspec.json.decode(answer.body)["offsetTable"] == {"T@g": {"0": 5}}


async def test_the_state_of_replication_is_told_with_rocketmqs_keys() -> None:
    answer = client_of(Broker()).call(RequestCode.GET_BROKER_HA_STATUS)
    state = msgspec.json.decode(answer.body)
    assert state["master"] is True
    assert state["masterCommitLogMaxOffset"] == 77
    assert {"inSyncSlaveNums", "haConnectionInfo", "haClientRuntimeInfo"} <= set(state)
