import pytest

from node.receive.retry_topics import retry_topic_of
from tandem.wire.receipt_handle import TopicMark


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        (TopicMark.NORMAL, "T"),
        (TopicMark.RETRY_V1, "%RETRY%g_T"),
        (TopicMark.RETRY_V2, "%RETRY%g+T"),
    ],
)
def test_what_comes_again_goes_to_a_retry_topic_and_from_there_to_the_same(
    mark: TopicMark, name: str
) -> None:
    assert retry_topic_of("g", "T", mark) == name
    for again in TopicMark:
        if mark:
            assert retry_topic_of("g", name, again) == name
