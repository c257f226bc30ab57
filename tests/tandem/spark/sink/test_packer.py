import random
from collections import defaultdict

import pytest

from tandem.client.identity import UniqueKeys
from tandem.client.sending import Sendings, SendSettings
from tandem.spark.sink.packer import GATHERED_BYTES_MAX, Packer, Parcel, UnfitError
from tandem.wire.message import Message
from tandem.wire.message_properties import java_string_hash
from tests.tandem.client.fake_broker import IDENTITY


def packer(batch_max_bytes: int = 1000, compress_over: int | None = None) -> Packer:
    settings = SendSettings("g", compress_over_bytes=compress_over, max_message_size_bytes=10_000)
    sendings = Sendings(settings, UniqueKeys(IDENTITY), lambda: 0.0, lambda: 0)
    return Packer(sendings, batch_max_bytes, lambda topic: 4 if topic == "t" else 1)


def bodies(parcels: list[Parcel]) -> list[list[bytes]]:
    return [[each.message.body for each in parcel.gathered] for parcel in parcels]


def pack(
    of: Packer, messages: list[Message], queues: list[int | None] | None = None
) -> list[Parcel]:
    return [*of.add(messages, queues), *of.rest()]


def message(number: int, topic: str = "t", **fields: object) -> Message:
    return Message(topic, b"%05d" % number, **fields)  # type: ignore[arg-type]


def test_a_batch_is_as_full_as_it_may_be() -> None:
    parcels = pack(packer(), [message(number) for number in range(30)])
    assert [body for part in bodies(parcels) for body in part] == [b"%05d" % n for n in range(30)]
    assert len(parcels) == 3
    for parcel in parcels:
        size = sum(len(each.entry) for each in parcel.gathered)
        assert size == parcel.size <= 1000
        assert parcel.lane is None


def test_each_topic_and_queue_has_batches_of_its_own() -> None:
    messages = [message(n, topic) for n, topic in enumerate("tuut")]
    parcels = pack(packer(), messages, [1, None, None, 2])
    found = [(parcel.topic, parcel.options.queue_id, len(parcel.gathered)) for parcel in parcels]
    assert found == [("t", 1, 1), ("u", None, 2), ("t", 2, 1)]


def test_sharding_keys_of_one_queue_share_batches_in_order() -> None:
    messages = [message(n, sharding_key=f"key {n % 20}") for n in range(300)]
    random.Random(1).shuffle(messages)
    parcels = pack(packer(), messages)
    assert {parcel.lane for parcel in parcels} == {("t", "place", place) for place in range(4)}
    assert len(parcels) < 50
    order: dict[str, list[bytes]] = defaultdict(list)
    for parcel in parcels:
        assert parcel.options.sharding_key == parcel.gathered[0].message.sharding_key
        for each in parcel.gathered:
            key = each.message.sharding_key
            assert parcel.lane == ("t", "place", abs(java_string_hash(key)) % 4)
            order[key].append(each.message.body)
    for key, found in order.items():
        assert found == [each.body for each in messages if each.sharding_key == key]


@pytest.mark.parametrize(
    "lone",
    [message(1, delay_time_level=1), Message("t", bytes(2000)), Message("t", bytes(600))],
    ids=["delayed", "large", "compressed"],
)
def test_what_cannot_be_in_a_batch_goes_alone_and_lets_the_others_wait(lone: Message) -> None:
    of = packer(compress_over=600)
    parcels = list(of.add([message(0), lone, message(2)]))
    assert [[each.message for each in parcel.gathered] for parcel in parcels] == [[lone]]
    assert bodies(list(of.rest())) == [[b"00000", b"00002"]]


def test_what_cannot_be_in_a_batch_keeps_its_place_among_those_of_its_key() -> None:
    large = Message("t", bytes(2000), sharding_key="k")
    parcels = pack(packer(), [message(0, sharding_key="k"), large, message(2, sharding_key="k")])
    assert bodies(parcels) == [[b"00000"], [large.body], [b"00002"]]
    assert len({parcel.lane for parcel in parcels}) == 1


def test_much_that_is_gathered_goes_without_being_full() -> None:
    of = packer(batch_max_bytes=100_000)
    topics = [f"t{number}" for number in range(3000)]
    gone = [parcel for topic in topics for parcel in of.add([Message(topic, bytes(5000))])]
    gathered = sum(parcel.size for parcel in of.rest())
    assert gone
    assert gathered <= GATHERED_BYTES_MAX


def test_what_cannot_be_sent_is_named() -> None:
    messages = [message(0), message(1, tags="a\x01b")]
    with pytest.raises(UnfitError, match="0x01") as caught:
        list(packer().add(messages))
    assert caught.value.index == 1
    with pytest.raises(UnfitError, match="properties take"):
        list(packer().add([message(0, properties={"a": "b" * 40_000})]))
