"""Whatever a client sends, it gets one answer, and never because of a bug of ours."""

import logging

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.broker.handler_set import Handlers
from node.name_server.route_table import RouteTable
from node.name_server.topic_route import TopicRoute
from node.remoting.dispatcher import Handler
from node.security.request import REQUESTS, handler_table
from tandem.wire.message import Message, encode_batch_body
from tandem.wire.remoting_command import SerializeType
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import CID_RMQ_SYS_TRANS, RMQ_SYS_TRANS_HALF_TOPIC
from tests.node.doubles import Broker, Client, handlers_of

ANSWERED_LATER = {
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.NOTIFICATION,
}

TEXTS = st.sampled_from(
    [
        "T",
        "T",
        "T",
        "",
        "g",
        "TBW102",
        "%RETRY%g",
        "a b",
        "../x",
        "\x01\x02",
        "WAIT\x01false",
        "TRAN_MSG\x01true",
        "\u4e2d",
        "*",
    ]
) | st.text(max_size=5)
NUMBERS = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5, 32, -1, -2, -(2**31), 2**31 - 1])
ODD = st.sampled_from(["-9223372036854775808", "18446744073709551616", "1e5", "maybe"]) | TEXTS
BODIES = st.sampled_from(
    [
        b"",
        b"hello",
        b"{}",
        b"[]",
        b'{"clientID":"c"}',
        b'{"topicConfigSerializeWrapper":{}}',
        encode_batch_body([Message("T", b"a"), Message("T", b"b", keys="k")]),
    ]
) | st.binary(max_size=60)


def everything(broker: Broker, handlers: Handlers | None = None) -> dict[int, Handler]:
    route = TopicRoute(RouteTable(20), lambda _: None, lambda _: None)
    return handler_table(*(handlers or handlers_of(broker)).families, route)


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, dict[str, str], bytes]:
    """A request whose fields have the right names, mostly, and any value."""
    code = draw(st.sampled_from(sorted(everything(Broker()))))
    header = REQUESTS[code].header
    fields = [] if header is None else msgspec.structs.fields(header)
    ext = {field.encode_name: draw(_value_of(str(field.type))) for field in fields}
    odd = draw(st.sampled_from([*[None] * 3 * len(ext), *ext, None]))
    if odd is not None:
        ext[odd] = draw(ODD)
    missing = draw(st.sampled_from([*[None] * 9 * len(ext), *ext, None]))
    if missing is not None:
        del ext[missing]
    return code, ext, draw(BODIES)


def _value_of(kind: str) -> st.SearchStrategy[str]:
    if "int" in kind:
        return NUMBERS.map(str)
    if "bool" in kind:
        return st.sampled_from(["true", "false"])
    return TEXTS


@pytest.mark.thorough
@settings(
    max_examples=4 * settings().max_examples, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(
    batch=st.lists(requests(), min_size=1, max_size=12),
    serialize_type=st.sampled_from(list(SerializeType)),
)
def test_any_request_is_answered_and_never_a_bug(
    caplog: pytest.LogCaptureFixture,
    batch: list[tuple[int, dict[str, str], bytes]],
    serialize_type: SerializeType,
) -> None:
    async def main() -> None:
        broker = Broker()
        handlers = handlers_of(broker)
        client = Client(everything(broker, handlers), broker.outbox)
        for code, ext, body in batch:
            # A binary header has 16 bits for the number of a request, and those of POP do not fit.
            form = serialize_type if code < 1 << 15 else SerializeType.JSON
            opaque = client.send(code, ext, body, serialize_type=form)
            broker.store.announce()
            answers = [a for a in client.answers() if a.is_response]
            held = broker.holds.held_count + handlers.pop.held.held_count
            assert [a.opaque for a in answers] == [opaque] or (code in ANSWERED_LATER and held)

    caplog.clear()
    with caplog.at_level(logging.ERROR):
        trio.run(main)
    assert caplog.text == ""


async def test_no_client_moves_the_offsets_that_the_broker_keeps_for_itself() -> None:
    """It would make the check of transactions pass over some of them."""
    group, topic = CID_RMQ_SYS_TRANS, RMQ_SYS_TRANS_HALF_TOPIC
    queue = {"topic": topic, "queueId": "0"}
    pull = {"consumerGroup": group, "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "5"}
    pull |= {"commitOffset": "9", "suspendTimeoutMillis": "0", "subVersion": "0"}
    pop = {"consumerGroup": group, "maxMsgNums": "1", "invisibleTime": "1", "pollTime": "0"}
    pop |= {"initMode": "0"}
    ack = {"consumerGroup": group, "offset": "0", "extraInfo": "0 1 1 0 0 broker-a 0 0"}
    broker = Broker()
    broker.offsets.commit(group, topic, 0, 5)
    broker.offsets.commit("g", topic, 0, 9)
    client = Client(everything(broker), broker.outbox)
    for code, fields, refused in (
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "commitOffset": "9"}, True),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"group": group, "timestamp": "-1"}, True),
        (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "g", "destGroup": group}, True),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": group, "cleanOffset": "true"}, True),
        (RequestCode.PULL_MESSAGE, pull, False),
        (RequestCode.POP_MESSAGE, pop, True),
        (RequestCode.ACK_MESSAGE, ack, True),
    ):
        answer = client.call(code, {**queue, **fields})
        assert (answer.code == ResponseCode.NO_PERMISSION) is refused, answer
        assert broker.offsets.query(group, topic, 0) == 5, code
