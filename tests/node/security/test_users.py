"""The users that a node knows."""

import pytest

from node.security.users import StoredUser, User, Users, UserStatus, why_not_signed
from tandem.wire.access_control import Kind, PolicyEntryInfo, PolicyInfo, Right
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.sealed_secret import seal

KEY = b"k" * 32
SECRET = "a secret"
FIELDS = {"topic": "T"}
IP = "10.0.0.1"


def stored(name: str = "alice", *, key: bytes = KEY, **more: object) -> StoredUser:
    return StoredUser(name, seal(key, name, SECRET, b"n" * 16), **more)  # type: ignore[arg-type]


def policies(resource: str, *actions: str) -> list[PolicyInfo]:
    return [PolicyInfo("Custom", [PolicyEntryInfo(resource, list(actions), None, "Allow")])]


def why_not(user: User | None, secret: str = SECRET) -> str | None:
    said = with_acl_signature("alice", secret, FIELDS, b"x")
    return why_not_signed(user, said, b"x", is_binary=False)


def test_a_signature_is_good_with_the_secret_of_a_user_who_is_enabled() -> None:
    assert why_not(User(stored(), (), KEY)) is None
    assert why_not(User(stored(), (), KEY), "another") == "the signature is wrong"
    assert why_not(User(stored(status=UserStatus.DISABLE), (), KEY)) == "the user is disabled"
    assert why_not(None) == "there is no such user"


def test_a_secret_that_cannot_be_opened_lets_nobody_in_and_says_why() -> None:
    """The cluster has another secret now, or the file has rotted."""
    reason = why_not(User(stored(key=b"o" * 32), (), KEY))
    assert "another secret of the cluster" in str(reason)
    assert "tandem user alter" in str(reason)


def test_what_may_be_done_is_kept_and_dies_with_what_it_was_found_in() -> None:
    users = Users(KEY)
    users.replace({"alice": stored()}, {"alice": policies("Topic:T", "Pub")})
    alice = users.find("alice")
    assert alice is not None
    asked = (Kind.TOPIC, "T", (Right.PUB,), IP)
    assert alice.verdict(*asked).is_allowed
    assert alice.verdict(*asked) is alice.verdict(*asked)
    assert not users.replace({"alice": stored()}, {"alice": policies("Topic:T", "Pub")})
    assert users.find("alice") is alice
    assert users.replace({"alice": stored()}, {"alice": policies("Topic:T", "Sub")})
    changed = users.find("alice")
    assert changed is not None
    assert changed is not alice
    assert not changed.verdict(*asked).is_allowed
    assert users.replace({}, {})
    assert users.find("alice") is None
    assert users.count == 0


def test_verdicts_that_are_kept_have_a_bound() -> None:
    alice = User(stored(), policies("Topic:*", "Pub"), KEY)
    for number in range(10_000):
        assert alice.verdict(Kind.TOPIC, f"T{number}", (Right.PUB,), IP).is_allowed
    assert len(alice._verdicts) <= 4_096


@pytest.mark.parametrize("resource", ["Nothing:T", ""])
def test_rules_of_another_version_allow_nothing(resource: str) -> None:
    alice = User(stored(), policies(resource, "Pub"), KEY)
    assert not alice.verdict(Kind.TOPIC, "T", (Right.PUB,), IP).is_allowed
