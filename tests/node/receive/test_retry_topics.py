import pytest

from node.receive.requests import Mark
from node.receive.retry_topics import mark_of, retry_topic_of, topic_of_retry


@pytest.mark.parametrize(
    ("mark", "name"),
    [(Mark.NORMAL, "T"), (Mark.RETRY_V1, "%RETRY%g_T"), (Mark.RETRY_V2, "%RETRY%g+T")],
)
def test_names_are_rocketmqs_and_lead_back(mark: Mark, name: str) -> None:
    assert retry_topic_of("g", "T", mark) == name
    assert mark_of("g", name) is mark
    assert topic_of_retry("g", name) == "T"


def test_what_comes_again_from_a_retry_topic_goes_there_again() -> None:
    for mark in Mark:
        assert retry_topic_of("g", "%RETRY%g_T", mark) == "%RETRY%g_T"


def test_the_retry_topic_of_a_group_is_of_the_first_kind() -> None:
    assert mark_of("g", "%RETRY%g") is Mark.RETRY_V1
    assert topic_of_retry("g", "%RETRY%g") == "%RETRY%g"
