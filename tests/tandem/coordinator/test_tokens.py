import itertools

import pytest

from tandem.coordinator.tokens import (
    IDLE_SECONDS_MAX,
    TOKENS_MAX,
    USER,
    AuthenticationError,
    NoTokenError,
    TokenNotKnownError,
    Tokens,
)


def some_tokens() -> Tokens:
    numbers = itertools.count()
    return Tokens("right", lambda: f"token {next(numbers)}")


def test_a_token_is_not_remembered_itself() -> None:
    tokens = some_tokens()
    token = tokens.authenticate(USER, "right", 0.0)
    assert not any(token.encode() in known for known in tokens._last_used)


def test_a_token_is_for_who_knows_the_password() -> None:
    tokens = some_tokens()
    for user, password in ((USER, "wrong"), (USER, ""), ("root", "right"), ("tandem right", "")):
        with pytest.raises(AuthenticationError):
            tokens.authenticate(user, password, 0.0)
    tokens.check(tokens.authenticate(USER, "right", 0.0), 1.0)
    with pytest.raises(NoTokenError):
        tokens.check("", 1.0)
    with pytest.raises(TokenNotKnownError):
        tokens.check("token 1", 1.0)


def test_a_token_lives_as_long_as_it_is_used() -> None:
    tokens = some_tokens()
    token = tokens.authenticate(USER, "right", 0.0)
    for number in range(1, 5):
        tokens.check(token, number * IDLE_SECONDS_MAX)
    with pytest.raises(TokenNotKnownError):
        tokens.check(token, 5 * IDLE_SECONDS_MAX + 0.1)


def test_of_too_many_the_one_that_was_not_used_longest_goes() -> None:
    tokens = some_tokens()
    first, second = (tokens.authenticate(USER, "right", 0.0) for _ in range(2))
    for _ in range(TOKENS_MAX - 2):
        tokens.authenticate(USER, "right", 0.0)
    tokens.check(first, 1.0)
    tokens.authenticate(USER, "right", 1.0)
    tokens.check(first, 1.0)
    with pytest.raises(TokenNotKnownError):
        tokens.check(second, 1.0)
