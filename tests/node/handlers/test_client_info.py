"""What operators ask about clients, and of them."""

import msgspec
import pytest
import trio

from node.handlers.client_info import object_after
from node.remoting import client_requests
from store import PutMessage
from tandem.wire.message import decode_messages, offset_msg_id
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tests.node.doubles import BROKER, NOW_MS, Broker, Client, handlers_of, request_table

BEAT = RequestCode.HEART_BEAT
CONSUMERS = RequestCode.GET_CONSUMER_CONNECTION_LIST
PRODUCERS = RequestCode.GET_PRODUCER_CONNECTION_LIST
RUNNING = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY


def clients_of(broker: Broker, count: int) -> list[Client]:
    table = request_table(handlers_of(broker))
    return [Client(table, broker.outbox, broker.to_clients) for _ in range(count)]


def consumer_beat(client_id: str) -> bytes:
    subscription = SubscriptionData("T", "TagA || TagB", 7)
    data = ConsumerData("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
    data = msgspec.structs.replace(data, subscription_data_set=[subscription])
    return encode_json_body(
        HeartbeatData(client_id, consumer_data_set=[data], producer_data_set=[ProducerData("p")])
    )


async def test_the_clients_of_a_group_and_what_it_consumes() -> None:
    broker = Broker()
    operator, consumer = clients_of(broker, 2)
    answer = operator.call(CONSUMERS, {"consumerGroup": "g"})
    assert (answer.code, answer.remark) == (206, "the consumer group[g] not online")
    consumer.call(BEAT, None, consumer_beat("c1"))
    body = msgspec.json.decode(operator.call(CONSUMERS, {"consumerGroup": "g"}).body)
    assert body["connectionSet"] == [
        {
            "clientId": "c1",
            "clientAddr": "10.1.2.3:1234",
            "language": "PYTHON",
            "version": body["connectionSet"][0]["version"],
        }
    ]
    assert body["connectionSet"][0]["version"] > 0
    wanted = body["subscriptionTable"]["T"]
    assert wanted["subString"] == "TagA || TagB"
    assert (wanted["tagsSet"], wanted["codeSet"]) == (["TagA", "TagB"], [2598919, 2598920])
    assert (body["consumeType"], body["messageModel"], body["consumeFromWhere"]) == (
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_FIRST_OFFSET",
    )


async def test_the_producers_of_a_group_and_of_all() -> None:
    broker = Broker()
    operator, producer = clients_of(broker, 2)
    answer = operator.call(PRODUCERS, {"producerGroup": "p"})
    assert (answer.code, answer.remark) == (1, "the producer group[p] not exist")
    producer.call(BEAT, None, consumer_beat("c1"))
    body = msgspec.json.decode(operator.call(PRODUCERS, {"producerGroup": "p"}).body)
    assert [each["clientId"] for each in body["connectionSet"]] == ["c1"]
    data = msgspec.json.decode(operator.call(RequestCode.GET_ALL_PRODUCER_INFO).body)["data"]
    assert list(data) == ["p"]
    assert data["p"][0]["remoteIP"] == "10.1.2.3:1234"
    assert data["p"][0]["lastUpdateTimestamp"] == pytest.approx(NOW_MS, abs=1000)


async def test_what_a_group_reads_and_wants() -> None:
    broker = Broker()
    operator, consumer = clients_of(broker, 2)
    consumer.call(BEAT, None, consumer_beat("c1"))
    broker.offsets.commit("g", "T", 0, 1)
    answer = operator.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"})
    assert msgspec.json.decode(answer.body) == {"topicList": ["T"]}
    for topic, text in (("T", "TagA || TagB"), ("U", None)):
        asked = {"group": "g", "topic": topic}
        answer = operator.call(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, asked)
        found = msgspec.json.decode(answer.body)["subscriptionData"]
        assert (found and found["subString"]) == text


async def test_a_client_is_asked_and_its_answer_passed_on() -> None:
    broker = Broker()
    operator, consumer = clients_of(broker, 2)
    consumer.call(BEAT, None, consumer_beat("c1"))
    consumer.answers()
    fields = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
    opaque = operator.send(RUNNING, fields)
    assert operator.answers() == []
    (request,) = consumer.stream.take_frames()
    assert (request.code, request.ext_fields()) == (RUNNING, fields)
    consumer.answer(request, 0, b'{"properties":{}}')
    (answer,) = operator.answers()
    assert (answer.code, answer.opaque, answer.body) == (0, opaque, b'{"properties":{}}')


async def test_a_client_that_does_not_answer_or_is_not_there() -> None:
    broker = Broker()
    operator, consumer = clients_of(broker, 2)
    fields = {"consumerGroup": "g", "clientId": "c1"}
    answer = operator.call(RUNNING, fields)
    assert (answer.code, answer.remark) == (1, "The Consumer <g> <c1> not online")
    consumer.call(BEAT, None, consumer_beat("c1"))
    operator.send(RUNNING, fields)
    broker.to_clients.expire(trio.current_time() + 9)
    assert operator.answers() == []
    broker.to_clients.expire(trio.current_time() + 11)
    (answer,) = operator.answers()
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT


async def test_too_many_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_requests, "ASKED_MAX", 0)
    broker = Broker()
    operator, consumer = clients_of(broker, 2)
    consumer.call(BEAT, None, consumer_beat("c1"))
    answer = operator.call(RUNNING, {"consumerGroup": "g", "clientId": "c1"})
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert operator.connection.owed_count == 0


async def test_a_client_is_given_a_message_to_handle() -> None:
    broker = Broker()
    operator, consumer = clients_of(broker, 2)
    consumer.call(BEAT, None, consumer_beat("c1"))
    consumer.answers()
    put = broker.store.puts.put_message(
        PutMessage("T", 0, b"hello", b"", NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
    )
    broker.store.announce()
    fields = {"consumerGroup": "g", "clientId": "c1", "brokerName": "broker-a"}
    operator.send(DIRECTLY, {**fields, "msgId": put.msg_id})
    operator.answers()
    (request,) = consumer.stream.take_frames()
    assert request.code == DIRECTLY
    assert [message.body for message in decode_messages(request.body)] == [b"hello"]
    answer = operator.call(DIRECTLY, {**fields, "msgId": offset_msg_id(BROKER, 1 << 40)})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    for msg_id in ("", "xyz", "00"):
        assert operator.call(DIRECTLY, {**fields, "msgId": msg_id}).code == 1


STATUS = (
    b'{"consumerTable":{},"messageQueueTable":{'
    b'{"brokerName":"broker-a","queueId":0,"topic":"T\\"}"}:5}}'
)


async def test_all_clients_of_a_group_are_asked_how_far_they_are() -> None:
    broker = Broker()
    operator, one, two, silent = clients_of(broker, 4)
    for number, client in enumerate((one, two, silent)):
        client.call(BEAT, None, consumer_beat(f"c{number}"))
        client.answers()
    for client in (one, two, silent):
        client.answers()
    operator.send(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "g"})
    operator.answers()
    for client, body in ((one, STATUS), (two, b'{"messageQueueTable":{')):
        (request,) = client.stream.take_frames()
        assert request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert request.ext_fields() == {"topic": "T", "group": "g"}
        client.answer(request, 0, body)
    assert operator.answers() == []
    broker.to_clients.expire(trio.current_time() + 11)
    (answer,) = operator.answers()
    assert answer.code == 0
    table = STATUS.split(b'"messageQueueTable":')[1][:-1]
    assert answer.body == b'{"consumerTable":{"c0":%b},"messageQueueTable":{}}' % table


async def test_one_client_may_be_asked_and_nobody_may_be_there() -> None:
    broker = Broker()
    operator, one, two = clients_of(broker, 3)
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    asked = {"topic": "T", "group": "g", "clientAddr": "c1"}
    assert operator.call(code, asked).code == 1
    one.call(BEAT, None, consumer_beat("c1"))
    two.call(BEAT, None, consumer_beat("c2"))
    one.answers()
    two.answers()
    operator.send(code, asked)
    operator.answers()
    assert (len(one.stream.take_frames()), len(two.stream.take_frames())) == (1, 0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"a":{"b":"}\\"}"}}', b'{"b":"}\\"}"}'),
        (b'{"a":{{}:1,{"x":{}}:2}}', b'{{}:1,{"x":{}}:2}'),
        (b'{"a":{', None),
        (b'{"a":1}', None),
        (b'{"a":"{"', None),
        (b"", None),
        (b'{"a":' + b"{" * 5000, None),
    ],
)
def test_an_object_is_cut_out_as_it_stands(text: bytes, found: bytes | None) -> None:
    assert object_after(text, b'"a":') == found
