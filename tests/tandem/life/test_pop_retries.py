import pytest

from tandem.life.pop_retries import PopRetry, pop_retry_of, pop_retry_topics

POPPED = {"1ST_POP_TIME": "1700000000000"}


def test_both_versions_are_named_and_understood() -> None:
    assert pop_retry_topics("g", "T") == ["%RETRY%g+T", "%RETRY%g_T"]
    for name in pop_retry_topics("g_1", "T_2"):
        assert pop_retry_of(name, POPPED, ["T_2"]) == PopRetry("g_1", "T_2")


def test_v2_needs_nothing_else() -> None:
    assert pop_retry_of("%RETRY%g+T", {}, []) == PopRetry("g", "T")


@pytest.mark.parametrize("name", ["%RETRY%+T", "%RETRY%g+", "%RETRY%+", "%DLQ%g+T", "T+g", ""])
def test_half_a_name_is_none(name: str) -> None:
    assert pop_retry_of(name, POPPED, ["T"]) is None


def test_a_group_may_be_called_like_a_pop_retry() -> None:
    given_back = {"RETRY_TOPIC": "T"}
    assert pop_retry_of("%RETRY%g_T", given_back, ["T"]) is None
    assert pop_retry_of("%RETRY%g_T", given_back | POPPED, ["T"]) is None
    assert pop_retry_of("%RETRY%g_T", {}, ["T"]) is None


def test_the_likeliest_topic_decides_where_underscores_do_not() -> None:
    assert pop_retry_of("%RETRY%a_b_c", POPPED, ["b_c", "c"]) == PopRetry("a", "b_c")
    assert pop_retry_of("%RETRY%a_b_c", POPPED, ["c", "b_c"]) == PopRetry("a_b", "c")
    assert pop_retry_of("%RETRY%a_b_c", POPPED, ["", "T", "a_b_c"]) is None
