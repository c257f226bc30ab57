"""Whether a group may read a topic."""

import pytest

from node.errors import RequestError
from node.handlers.reading import check_reader, readable_topic
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import Broker


@pytest.mark.parametrize(
    ("topic", "code"),
    [("none", ResponseCode.TOPIC_NOT_EXIST), ("Written", ResponseCode.NO_PERMISSION)],
)
async def test_a_topic_that_cannot_be_read(topic: str, code: ResponseCode) -> None:
    broker = Broker()
    broker.topics.update(TopicConfig(topic_name="Written", perm=2))
    with pytest.raises(RequestError) as caught:
        readable_topic(broker.tables, topic)
    assert caught.value.code == code
    assert readable_topic(broker.tables, "T").read_queue_nums == 4


async def test_a_group_that_an_operator_has_stopped_does_not_read() -> None:
    broker = Broker()
    group = SubscriptionGroupConfig("g")
    check_reader(broker.tables, group, "T")
    broker.tables.forbid("g", "T", 1)
    for stopped in (group, SubscriptionGroupConfig("h", consume_enable=False)):
        with pytest.raises(RequestError) as caught:
            check_reader(broker.tables, stopped, "T")
        assert caught.value.code == ResponseCode.NO_PERMISSION
    check_reader(broker.tables, group, "Other")
