import pytest

from node.errors import RequestError
from node.handlers.group_topics import dead_letter_topic, ensure_topic
from tests.node.doubles import Broker


def test_a_topic_of_a_group_is_created_once() -> None:
    broker = Broker()
    ensure_topic(broker.tables, "%RETRY%g", 2)
    config = broker.topics.get("%RETRY%g")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (2, 2, 6)
    changes = broker.topic_changes
    ensure_topic(broker.tables, "%RETRY%g", 4)
    assert broker.topic_changes == changes


def test_the_dead_letters_of_a_group_have_one_queue() -> None:
    broker = Broker()
    assert dead_letter_topic(broker.tables, "g") == "%DLQ%g"
    config = broker.topics.get("%DLQ%g")
    assert config is not None
    assert config.read_queue_nums == 1


def test_a_name_that_no_topic_can_have_is_refused() -> None:
    with pytest.raises(RequestError):
        dead_letter_topic(Broker().tables, "a b")
