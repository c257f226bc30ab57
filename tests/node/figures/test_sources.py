from node.figures.sources import group_labels, topic_labels


def test_names_of_the_system_are_marked() -> None:
    of_topic = dict(topic_labels()("rmq_sys_x", "normal").pairs)
    assert of_topic == {"topic": "rmq_sys_x", "message_type": "normal", "is_system": "true"}
    of_group = dict(group_labels()("%RETRY%g", "g").pairs)
    assert (of_group["is_retry"], of_group["is_system"]) == ("true", "false")
