"""Requests about users: RocketMQ's answers, without their secrets."""

from unittest.mock import patch

import msgspec
import pytest

from node.handlers.user_requests import HIDDEN, SECRET_CHARACTERS_MAX
from node.security.users import USERS_MAX, StoredUser, UserStatus, UserType
from node.tables.replicated_users import AclsChanged, AclsPart, AllUsers, UsersChanged
from tandem.wire.access_control import PolicyEntryInfo, PolicyInfo
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.handlers.user_world import SECRET, Users

CREATE, UPDATE = RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER
DELETE, GET, LIST = (
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
)
REFUSED = ResponseCode.NO_PERMISSION


async def test_a_user_is_created_changed_and_deleted() -> None:
    users = Users()
    assert users.create().code == 0
    user = users.stored["alice"]
    assert (user.user_type, user.status) == (UserType.NORMAL, UserStatus.ENABLE)
    assert users.secret_of("alice") == SECRET
    assert SECRET not in user.sealed
    assert users.ask(UPDATE, "alice", userStatus="disable").code == 0
    assert users.stored["alice"].status is UserStatus.DISABLE
    assert users.secret_of("alice") == SECRET
    assert users.ask(UPDATE, "alice", password="another secret", userType="super").code == 0
    assert users.secret_of("alice") == "another secret"
    assert users.stored["alice"].user_type is UserType.SUPER
    assert users.stored["alice"].status is UserStatus.DISABLE
    assert users.ask(DELETE, "alice").code == 0
    assert users.stored == {}
    assert users.ask(DELETE, "alice").code == 0  # as in RocketMQ


async def test_no_answer_has_a_secret() -> None:
    users = Users()
    for name in ("bob", "alice", "malice"):
        users.create(name)
    answer = users.ask(GET, "alice")
    expected = {
        "password": HIDDEN,
        "userStatus": "enable",
        "userType": "Normal",
        "username": "alice",
    }
    assert msgspec.json.decode(answer.body) == expected
    assert (users.ask(GET, "nobody").code, users.ask(GET, "nobody").body) == (0, b"")
    found = msgspec.json.decode(users.ask(LIST).body)
    assert [each["username"] for each in found] == ["alice", "bob", "malice"]
    answer = users.client.call(LIST, {"filter": "lic"})
    assert [each["username"] for each in msgspec.json.decode(answer.body)] == ["alice", "malice"]
    assert {each["password"] for each in found} == {HIDDEN}
    # What mqadmin's copyUser would make of it.
    refused = users.create("carol", password=HIDDEN)
    assert (refused.code, HIDDEN in str(refused.remark)) == (REFUSED, True)


async def test_refusals_are_in_rocketmqs_words() -> None:
    users = Users()
    users.create()
    again = users.create()
    assert (again.code, again.remark) == (REFUSED, "The user is existed")
    assert users.create("bob", password=" ").remark == "password can not be blank"
    assert users.ask(UPDATE, "bob", userType="Super").remark == "The user is not exist"
    assert users.ask(CREATE, None, password=SECRET).remark == "username can not be blank"
    assert list(users.stored) == ["alice"]


async def test_the_name_in_the_header_counts() -> None:
    users = Users()
    assert users.ask(CREATE, "header", username="body", password=SECRET).code == 0
    assert (
        users.client.call(
            CREATE, {}, msgspec.json.encode({"username": "body", "password": SECRET})
        ).code
        == 0
    )
    assert sorted(users.stored) == ["body", "header"]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("tandem-operator", {}),
        (" blank", {}),
        ("a\nline", {}),
        ("n" * 256, {}),
        ("bob", {"password": "short"}),
        ("bob", {"password": "x" * (SECRET_CHARACTERS_MAX + 1)}),
        ("bob", {"userType": "Supr"}),
        ("bob", {"userStatus": "off"}),
    ],
)
async def test_what_nobody_means_makes_no_user(name: str, body: dict[str, str]) -> None:
    users = Users()
    answer = users.create(name, **body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert SECRET not in str(answer.remark)
    assert users.stored == {}


async def test_there_are_not_more_than_can_be_known() -> None:
    users = Users()
    many = [StoredUser(f"u{number}", "") for number in range(USERS_MAX)]
    users.broker.tables.change(UsersChanged(many))
    answer = users.create()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert str(USERS_MAX) in str(answer.remark)


async def test_a_node_that_is_not_the_master_has_nothing_to_do() -> None:
    """Tools write to every node of a cluster."""
    users = Users()
    users.replication.is_master = False
    assert users.create().code == 0
    assert users.ask(UPDATE, "alice", userType="Super").code == 0
    assert users.ask(DELETE, "alice").code == 0
    assert users.stored == {}


async def test_a_new_user_of_an_old_name_may_nothing() -> None:
    """A file of a user's end was written, and that of what they might was not."""
    users = Users()
    policies = [PolicyInfo("Custom", [PolicyEntryInfo("*", ["All"], None, "Allow")])]
    users.broker.tables.change(AclsChanged({"alice": policies}))
    users.create()
    assert users.broker.tables.as_confirmed(AclsPart).acls == {}


async def test_a_slave_is_told_everything_sealed() -> None:
    users = Users()
    users.create()
    body = users.client.call(RequestCode.GET_ALL_USERS).body
    assert msgspec.json.decode(body, type=AllUsers).users == [users.stored["alice"]]
    assert SECRET.encode() not in body


async def test_two_secrets_are_never_sealed_alike() -> None:
    users = Users()
    sealed = set()
    for name in ("a", "b", "c"):
        users.create(name)
        sealed.add(users.stored[name].sealed[:20])
    assert len(sealed) == 3


async def test_a_change_that_cannot_be_written_changes_nothing() -> None:
    users = Users()
    users.create()
    with patch.object(users.broker.tables, "change", side_effect=OSError("no disk")):
        assert users.ask(DELETE, "alice").code != 0
    assert list(users.stored) == ["alice"]
