from __future__ import annotations

from node.errors import (
    ConfigError,
    NodeError,
    RequestError,
)


def test_errors_for_the_operator_have_an_exit_status() -> None:
    kinds = (NodeError, ConfigError)
    assert [kind.exit_status for kind in kinds] == [1, 2]


def test_a_config_error_lists_all_problems() -> None:
    error = ConfigError(["first", "second"])
    assert error.problems == ["first", "second"]
    assert str(error) == "first\nsecond"


def test_a_request_error_carries_what_is_answered() -> None:
    error = RequestError(17, "no such topic")
    assert (error.code, error.remark) == (17, "no such topic")
