import msgspec
import pytest

from tandem.wire import request_headers
from tandem.wire.request_headers import (
    Header,
    HeartbeatData,
    HeartbeatResponseHeader,
    RegisterBrokerBody,
    SendMessageResponseHeader,
    TopicConfig,
    TopicConfigSerializeWrapper,
    UnregisterClientRequestHeader,
)
from tandem.wire.route import decode_json_body, encode_json_body

HEADERS = [
    header
    for header in vars(request_headers).values()
    if isinstance(header, type) and issubclass(header, Header) and header is not Header
]


@pytest.mark.parametrize("header_type", HEADERS, ids=lambda header: str(header.__name__))
def test_every_default_of_a_header_is_none_since_defaults_are_left_out(
    header_type: type[Header],
) -> None:
    for field in msgspec.structs.fields(header_type):
        assert field.default in (msgspec.NODEFAULT, None)
        assert field.default_factory is msgspec.NODEFAULT


def test_names_that_are_not_camel_case() -> None:
    def names(header_type: type[Header]) -> list[str]:
        return [field.encode_name for field in msgspec.structs.fields(header_type)]

    assert names(SendMessageResponseHeader)[-2:] == ["MSG_REGION", "TRACE_ON"]
    assert names(UnregisterClientRequestHeader)[0] == "clientID"
    assert names(HeartbeatResponseHeader) == ["IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"]


def test_a_heartbeat_of_a_java_client_is_read() -> None:
    body = (
        b'{"clientID":"10.0.0.9@4711#83","consumerDataSet":[{"consumeFromWhere":'
        b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG",'
        b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":'
        b'[2598919,"2598920"],"expressionType":"TAG","subString":"TagA || TagB","subVersion":'
        b'1700000000000,"tagsSet":["TagA","TagB"],"topic":"T1"}],"unitMode":false}],'
        b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}'
    )
    heartbeat = decode_json_body(body, HeartbeatData)
    assert heartbeat.client_id == "10.0.0.9@4711#83"
    assert heartbeat.consumer_data_set[0].subscription_data_set[0].tags_set == ["TagA", "TagB"]
    assert heartbeat.producer_data_set[0].group_name == "PG"
    assert decode_json_body(encode_json_body(heartbeat), HeartbeatData) == heartbeat


def test_a_registration_has_every_key_that_java_wants() -> None:
    body = RegisterBrokerBody(
        TopicConfigSerializeWrapper({"T1": TopicConfig("T1", 4, 4)}),
    )
    assert encode_json_body(body) == (
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T1":{"topicName":"T1",'
        b'"readQueueNums":4,"writeQueueNums":4,"perm":6,"topicFilterType":"SINGLE_TAG",'
        b'"topicSysFlag":0,"order":false,"attributes":{}}},"dataVersion":{"stateVersion":0,'
        b'"timestamp":0,"counter":0},"mappingDataVersion":{"stateVersion":0,"timestamp":0,'
        b'"counter":0},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}},'
        b'"filterServerList":[]}'
    )


@pytest.mark.parametrize(
    "header",
    [request_headers.ConsumerSendMsgBackRequestHeader, request_headers.EndTransactionRequestHeader],
)
def test_a_field_of_ours_comes_after_those_of_rocketmq(header: type[msgspec.Struct]) -> None:
    """The client gives values by their places: one in between is taken for another."""
    assert header.__struct_fields__[-2:] == ("broker_name", "only_topic")
