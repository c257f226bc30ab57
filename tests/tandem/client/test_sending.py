import pytest

from tandem.client.ack import Ack
from tandem.client.identity import ClientIdentity, UniqueKeys
from tandem.client.sending import (
    MESSAGE_BYTES_MAX,
    NO_OPTIONS,
    SEND,
    SEND_BATCH,
    Sending,
    Sendings,
    SendOptions,
    SendSettings,
)
from tandem.wire.batch_body import decode_batch_body
from tandem.wire.compression import Codec, decompress
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message
from tandem.wire.message_properties import decode_properties, java_string_hash

NOW = 100.0


def sendings(settings: SendSettings | None = None) -> Sendings:
    keys = UniqueKeys(ClientIdentity(ip="127.0.0.1", process_id=1, salt=7))
    return Sendings(settings or SendSettings("g"), keys, lambda: NOW, lambda: 1_700_000_000_000)


def properties_of(sending: Sending) -> dict[str, str]:
    return decode_properties(sending.properties.encode())


def test_a_message_becomes_a_request_with_a_key_and_a_deadline() -> None:
    sending = sendings().one(Message("T", b"body", keys="k", tags="t", flag=3), SendOptions())
    assert (sending.code, sending.topic, sending.body, sending.flag) == (SEND, "T", b"body", 3)
    assert sending.deadline == NOW + 12
    assert sending.tries_left > 1000
    properties = properties_of(sending)
    assert properties == {"WAIT": "true", "KEYS": "k", "TAGS": "t", "UNIQ_KEY": sending.msg_id}


@pytest.mark.parametrize(
    "settings",
    [
        SendSettings("g"),
        SendSettings("g", Ack.REPLICATED_FLUSHED, 2, send_msg_timeout_ms=1500),
        SendSettings("g", Ack.ASYNC, max_message_size_bytes=2, compress_over_bytes=5),
        SendSettings("g", compress_over_bytes=5),
    ],
)
@pytest.mark.parametrize("body", [b"", b"body", bytes(500)])
def test_the_short_way_of_a_bare_message_makes_the_same_request(
    settings: SendSettings, body: bytes
) -> None:
    message = Message("T", body, flag=3)

    def made(options: SendOptions) -> object:
        try:
            sending = sendings(settings).one(message, options)
        except ValueError as error:
            return str(error)
        return {name: getattr(sending, name) for name in Sending.__slots__}

    # Options that say nothing, and are not NO_OPTIONS, go the long way.
    assert made(NO_OPTIONS) == made(SendOptions())


def test_no_two_messages_share_a_key_unless_they_bring_one() -> None:
    many = sendings()
    first, second = (many.one(Message("T", b""), SendOptions()) for _ in range(2))
    assert first.msg_id != second.msg_id
    own = many.one(Message("T", b"", properties={"UNIQ_KEY": "mine"}), SendOptions())
    assert own.msg_id == "mine"


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        (SendOptions(), {"WAIT": "true"}),
        (SendOptions(wait_store_msg_ok=False), {"WAIT": "false"}),
        (SendOptions(ack=Ack.REPLICATED_FLUSHED), {"WAIT": "true", "TANDEM_ACK": "flushed"}),
    ],
)
def test_the_contract_travels_as_properties(
    options: SendOptions, properties: dict[str, str]
) -> None:
    sending = sendings().one(Message("T", b""), options)
    assert {**properties, "UNIQ_KEY": sending.msg_id} == properties_of(sending)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (Message("T", bytes(MESSAGE_BYTES_MAX + 1)), "body"),
        (Message("T", b"", properties={"p": "x" * 33_000}), "properties"),
        (Message("T", b"", properties={"": "no name"}), ""),
    ],
)
def test_what_no_broker_takes_is_refused(message: Message, name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        sendings().one(message, SendOptions())
    assert caught.value.names == (name,)


def test_a_batch_is_one_request_with_a_key_for_each_message() -> None:
    messages = [Message("T", b"a"), Message("T", b"b", properties={"UNIQ_KEY": "mine"})]
    sending = sendings().batch(messages, SendOptions(queue_id=2))
    assert (sending.code, sending.queue_id) == (SEND_BATCH, 2)
    entries = list(decode_batch_body(sending.body))
    keys = [decode_properties(entry.properties)["UNIQ_KEY"] for entry in entries]
    assert [entry.body for entry in entries] == [b"a", b"b"]
    assert sending.msg_id == ",".join(keys)
    assert keys[1] == "mine"


def test_a_batch_has_no_key_that_rocketmqs_broker_would_give_to_its_messages() -> None:
    of = sendings()
    messages = [Message("T", b"1"), Message("T", b"2")]
    entries = [of.entry(each, SendOptions())[1] for each in messages]
    for batch in (of.batch(messages, SendOptions()), of.gathered("T", entries, SendOptions())):
        assert properties_of(batch) == {"WAIT": "true"}


@pytest.mark.parametrize(
    ("messages", "name"),
    [
        ([], "topic"),
        ([Message("T", b""), Message("U", b"")], "topic"),
        ([Message("T", b"", delay_time_level=3)], "delay_time_level"),
    ],
)
def test_a_batch_has_one_topic_and_no_delay(messages: list[Message], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        sendings().batch(messages, SendOptions())
    assert name in caught.value.names


def test_the_second_try_comes_at_once_and_later_ones_after_a_pause() -> None:
    sending = sendings().one(Message("T", b""), SendOptions())
    pauses = []
    for count in range(4):
        sending.tries_count = count
        pauses.append(sending.pause_seconds)
    assert pauses == [0.0, 0.0, 0.05, 0.05]


def test_a_producer_may_bound_the_tries() -> None:
    settings = SendSettings("g", retry_times_when_send_failed=0)
    assert sendings(settings).one(Message("T", b""), SendOptions()).tries_left == 1


@pytest.mark.parametrize(
    ("message", "properties"),
    [
        (Message("T", b"", delay_time_level=3), {"DELAY": "3"}),
        (Message("T", b"", delay_ms=5), {"TIMER_DELAY_MS": "5"}),
        (Message("T", b"", sharding_key="k"), {"__SHARDINGKEY": "k"}),
    ],
)
def test_a_message_without_keys_tags_or_properties_keeps_the_rest(
    message: Message, properties: dict[str, str]
) -> None:
    sending = sendings().one(message, SendOptions())
    assert properties_of(sending) == {"WAIT": "true", **properties, "UNIQ_KEY": sending.msg_id}


def test_a_sharding_key_of_the_send_or_of_the_message_chooses_the_queue() -> None:
    by_send = sendings().one(Message("T", b""), SendOptions(sharding_key="o-7"))
    by_message = sendings().one(Message("T", b"", sharding_key="o-7"), SendOptions())
    assert by_send.sharding_hash == by_message.sharding_hash == java_string_hash("o-7")
    assert properties_of(by_send)["__SHARDINGKEY"] == "o-7"
    with pytest.raises(ArgumentError) as caught:
        sendings().one(Message("T", b"", sharding_key="o-7"), SendOptions(queue_id=1))
    assert caught.value.names == ("queue_id", "sharding_key")
    both = [Message("T", b"", sharding_key="a"), Message("T", b"", sharding_key="b")]
    with pytest.raises(ArgumentError) as caught:
        sendings().batch(both, SendOptions())
    assert caught.value.names == ("sharding_key",)


@pytest.mark.parametrize(("codec", "kind"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
def test_large_bodies_are_compressed_if_that_makes_them_smaller(codec: Codec, kind: int) -> None:
    settings = SendSettings("g", compress_over_bytes=100, compression=codec)
    large = sendings(settings).one(Message("T", b"x" * 100), SendOptions())
    assert large.sys_flag == kind
    assert decompress(large.body, large.sys_flag) == b"x" * 100
    small = sendings(settings).one(Message("T", b"x" * 99), SendOptions())
    assert (small.sys_flag, small.body) == (0, b"x" * 99)
    noise = bytes(range(256))
    assert sendings(settings).one(Message("T", noise), SendOptions()).body == noise


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"", delay_time_level=1),
        Message("T", b"", properties={"TIMER_DELAY_SEC": "1"}),
        Message("%RETRY%g", b""),
        Message("T", bytes(100)),
    ],
)
def test_what_no_broker_takes_in_a_batch_goes_alone(message: Message) -> None:
    few = sendings(SendSettings("g", compress_over_bytes=100))
    assert not few.fits_a_batch(message)
    assert few.fits_a_batch(Message("T", b"", keys="k", sharding_key="s"))


def test_entries_of_several_sends_become_one_request() -> None:
    many = sendings()
    own = Message("T", b"b", keys=["k"], flag=3, properties={"UNIQ_KEY": "mine", "WAIT": "x"})
    keys, entries = zip(
        *(many.entry(message, SendOptions()) for message in (Message("T", b"a"), own)), strict=True
    )
    sending = many.gathered("T", entries, SendOptions(ack=Ack.ASYNC))
    assert sending.code == SEND_BATCH
    assert properties_of(sending)["WAIT"] == "false"
    first, second = decode_batch_body(sending.body)
    assert (first.body, decode_properties(first.properties)) == (b"a", {"UNIQ_KEY": keys[0]})
    assert (second.flag, keys[1]) == (3, "mine")
    assert decode_properties(second.properties) == {"KEYS": "k", "UNIQ_KEY": "mine"}
    with pytest.raises(ArgumentError) as caught:
        many.entry(Message("T", bytes(MESSAGE_BYTES_MAX + 1)), SendOptions())
    assert caught.value.names == ("body",)


def test_the_contract_of_a_message_is_what_is_said_most_closely() -> None:
    few = sendings()
    assert few.ack_of(Message("T", b""), SendOptions()) is Ack.REPLICATED
    assert few.ack_of(Message("T", b"", wait_store_msg_ok=False), SendOptions()) is Ack.ASYNC
    flushed = Message("T", b"", properties={"TANDEM_ACK": "flushed"})
    assert few.ack_of(flushed, SendOptions()) is Ack.REPLICATED_FLUSHED
