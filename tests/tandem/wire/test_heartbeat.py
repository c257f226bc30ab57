from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire import heartbeat
from tandem.wire.errors import MalformedFrameError
from tandem.wire.heartbeat import CONSUME_FROM_WHERE, decode_heartbeat
from tandem.wire.request_headers import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from tandem.wire.route import encode_json_body

CPP = Path(__file__).parents[2] / "data" / "rocketmq-clients" / "heartbeat-cpp.json"


def test_the_heartbeat_of_the_cpp_library_is_understood() -> None:
    beat = decode_heartbeat(CPP.read_bytes())
    assert beat == HeartbeatData(
        "15848-127.0.0.1@DEFAULT",
        consumer_data_set=[
            ConsumerData(
                "CG",
                "CONSUME_PASSIVELY",
                "CLUSTERING",
                "CONSUME_FROM_LAST_OFFSET",
                [
                    SubscriptionData("%RETRY%CG", "*", 1795382109511),
                    SubscriptionData(
                        "T1",
                        "TagA || TagB",
                        1795382109511,
                        tags_set=["TagA", "TagB"],
                        code_set=[0, 0],
                    ),
                ],
            )
        ],
    )


def test_ours_is_read_as_it_was_written() -> None:
    beat = HeartbeatData(
        "c",
        [ProducerData("PG")],
        [ConsumerData("g", "CONSUME_POP", "BROADCASTING", CONSUME_FROM_WHERE[5])],
        7,
        without_sub=True,
    )
    assert decode_heartbeat(encode_json_body(beat)) == beat


@pytest.mark.parametrize("number", range(6))
def test_a_number_is_the_place_of_a_name(number: int) -> None:
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeFromWhere":%d}]}'
    (data,) = decode_heartbeat(body % number).consumer_data_set
    assert data.consume_from_where == CONSUME_FROM_WHERE[number]


@pytest.mark.parametrize(
    "consumer",
    [
        '"messageModel":2',
        '"consumeType":-1',
        '"messageModel":null',
        '"subscriptionDataSet":[{"topic":"T","subVersion":"x"}]',
        '"messageModel":0,"x":[}',
    ],
)
def test_what_no_client_sends_is_refused(consumer: str) -> None:
    body = f'{{"clientID":"c","consumerDataSet":[{{"groupName":"g",{consumer}}}]}}'
    with pytest.raises(MalformedFrameError):
        decode_heartbeat(body.encode())


@given(
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from(["clientID", "consumerDataSet", "producerDataSet", "withoutSub"]),
        st.none()
        | st.integers()
        | st.text(max_size=5)
        | st.lists(
            st.dictionaries(
                st.sampled_from(["groupName", "consumeType", "messageModel"]),
                st.integers() | st.text(max_size=3) | st.floats(),
            ),
            max_size=3,
        ),
    ).map(msgspec.json.encode)
)
def test_any_body_is_a_heartbeat_or_refused(body: bytes) -> None:
    with suppress(MalformedFrameError):
        decode_heartbeat(body)


def test_a_heartbeat_that_is_too_long_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_BYTES_MAX", 100)
    whole = encode_json_body(HeartbeatData("c" * 50))
    assert len(whole) > 100
    with pytest.raises(MalformedFrameError) as caught:
        decode_heartbeat(whole)
    assert caught.value.limit == 100
    # Not even looked at: it is no JSON.
    with pytest.raises(MalformedFrameError) as caught:
        decode_heartbeat(b"[" * 101)
    assert caught.value.limit == 100


def test_a_heartbeat_with_too_many_records_is_refused_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeat, "RECORDS_MAX", 3)
    few = HeartbeatData("c", consumer_data_set=[ConsumerData("a"), ConsumerData("b")])
    assert decode_heartbeat(encode_json_body(few)) == few
    with pytest.raises(MalformedFrameError) as caught:
        decode_heartbeat(b"{{{{")
    assert caught.value.limit == 3
