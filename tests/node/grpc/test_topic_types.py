import pytest

from node.grpc.errors import CallError
from node.grpc.protocol import messages as pb
from node.grpc.topic_types import TopicTypes, checked_topic
from tandem.wire.request_headers import TopicConfig

TOPICS = {
    kind: TopicConfig(kind, attributes={"message.type": kind})
    for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED", "UNSPECIFIED")
} | {"Plain": TopicConfig("Plain")}


def test_a_topic_takes_its_type_alone_and_mixed_takes_all() -> None:
    types = TopicTypes(TOPICS.get)
    kinds = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY")
    for topic in TOPICS:
        expected = {"MIXED": kinds, "Plain": ("NORMAL",), "UNSPECIFIED": ()}
        taken = expected.get(topic, (topic,))
        for kind in kinds:
            if kind in taken:
                types.check(topic, kind)
                continue
            with pytest.raises(CallError) as caught:
                types.check(topic, kind)
            assert caught.value.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_clients_know_what_a_topic_takes() -> None:
    types = TopicTypes(TOPICS.get)
    assert types.accepted("Plain") == [pb.NORMAL]
    assert types.accepted("FIFO") == [pb.FIFO]
    assert types.accepted("PRIORITY") == [pb.PRIORITY]
    assert types.accepted("MIXED") == [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]
    assert types.accepted("unknown") == [pb.MESSAGE_TYPE_UNSPECIFIED]


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102"])
def test_names_that_clients_may_not_use_are_illegal(name: str) -> None:
    with pytest.raises(CallError) as caught:
        checked_topic(pb.Resource(name=name))
    assert caught.value.code == pb.ILLEGAL_TOPIC
