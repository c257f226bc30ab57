from tandem.wire.system_topics import dlq_topic, retry_topic


def test_each_group_has_a_retry_topic_and_a_dead_letter_topic() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert dlq_topic("g") == "%DLQ%g"
