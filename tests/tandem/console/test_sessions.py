import itertools

import pytest

from tandem.console.errors import APIError
from tandem.console.sessions import (
    FAILURE_SECONDS,
    FAILURES_MAX,
    FAILURES_OF_ALL_MAX,
    IDLE_SECONDS,
    SESSIONS_MAX,
    LoginToken,
    Sessions,
)


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.ended: list[str] = []
        numbers = itertools.count()
        self.texts = lambda: f"random {next(numbers)}"
        self.sessions: Sessions[str] = Sessions(lambda: self.now, self.texts, self.ended.append)


def test_a_session_is_found_by_what_its_browser_has_and_by_nothing_else() -> None:
    world = World()
    secret, session = world.sessions.open("shop", "account")
    assert world.sessions.find(secret) is session
    for other in ("", secret[:-1], secret + "0", session.key, "\ud800"):
        assert world.sessions.find(other) is None


def test_only_use_keeps_a_session() -> None:
    world = World()
    secret, session = world.sessions.open("", "account")
    world.now = IDLE_SECONDS - 1
    assert world.sessions.is_live(session)
    world.sessions.find(secret)
    world.now += IDLE_SECONDS - 1
    assert world.sessions.is_live(session)
    world.now += 2
    assert not world.sessions.is_live(session)
    assert world.ended == ["account"]
    world.sessions.close(session)
    assert world.ended == ["account"]


def test_the_one_that_is_idle_longest_makes_room() -> None:
    world = World()
    opened = []
    for number in range(SESSIONS_MAX):
        world.now = number
        opened.append(world.sessions.open("", f"account {number}"))
    world.sessions.find(opened[0][0])
    world.sessions.open("", "one more")
    assert world.ended == ["account 1"]


def test_who_logs_in_again_and_again_ends_no_session_of_others() -> None:
    world = World()
    world.sessions.open("root", "of root")
    for number in range(SESSIONS_MAX):
        world.now = number
        world.sessions.open("shop", f"of shop {number}")
    assert world.ended == ["of shop 0"]


def test_failures_of_an_address_and_of_all_are_bounded() -> None:
    world = World()
    for _ in range(FAILURES_MAX):
        world.sessions.try_login("a")
    with pytest.raises(APIError) as caught:
        world.sessions.try_login("a")
    assert caught.value.code == "too_many_logins"
    world.sessions.try_login("b")
    world.sessions.succeeded("b")
    for number in range(FAILURES_OF_ALL_MAX - FAILURES_MAX):
        world.sessions.try_login(f"c{number}")
    with pytest.raises(APIError):
        world.sessions.try_login("another")
    world.now = FAILURE_SECONDS
    world.sessions.try_login("a")
    assert len(world.sessions._failures) == 1


def test_a_token_is_used_up() -> None:
    token = LoginToken(World().texts)
    first = token.text
    assert not token.take("x")
    assert not token.take("")
    assert token.take(first)
    assert not token.take(first)
    assert token.take(token.text)
