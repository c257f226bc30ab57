import msgspec
import pytest

from tandem.client.errors import BrokerError, UserExistsError, UserNotFoundError
from tandem.client.user_admin import UserAdministration
from tandem.wire.access_control import AclInfo, PolicyEntryInfo, PolicyInfo, PolicyType, UserInfo
from tandem.wire.admin_headers import DeleteAclRequestHeader, UserRequestHeader
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.user_quota import UserQuota
from tests.tandem.client.admin_bench import AdminBench
from tests.tandem.client.fake_broker import MASTER, OTHER_MASTER, answer_to

HIDDEN = "******"
ENTRY = PolicyEntryInfo("Topic:T", ["Pub"], None, "Allow")
POLICIES = [PolicyInfo("Custom", [ENTRY])]


class Bench(AdminBench):
    """Two groups, each with its own users."""

    def __init__(self, **users: dict[str, UserInfo]) -> None:
        super().__init__()
        self.known = {"broker-a": users.get("a", {}), "broker-b": users.get("b", {})}
        self.acls: dict[str, list[AclInfo]] = {"broker-a": [], "broker-b": []}
        self.answer(
            RequestCode.AUTH_LIST_USER,
            lambda request, name: answer_to(
                request, body=msgspec.json.encode(list(self.known[name].values()))
            ),
        )
        self.answer(
            RequestCode.AUTH_LIST_ACL,
            lambda request, name: answer_to(request, body=msgspec.json.encode(self.acls[name])),
        )
        for code in (
            RequestCode.AUTH_CREATE_USER,
            RequestCode.AUTH_UPDATE_USER,
            RequestCode.AUTH_DELETE_USER,
            RequestCode.AUTH_UPDATE_ACL,
            RequestCode.AUTH_DELETE_ACL,
        ):
            self.answer(code, lambda request, name: answer_to(request))
        self.users = UserAdministration(self.calls)

    def asked(self, code: RequestCode) -> list[tuple[str, RemotingCommand]]:
        return self.requests(code)


def user(name: str = "alice", *, kind: str = "Normal", status: str = "enable") -> UserInfo:
    return UserInfo(HIDDEN, status, kind, name)


def test_a_user_is_what_all_groups_say_together() -> None:
    bench = Bench(
        a={"alice": user(), "bob": user("bob"), "carl": user("carl")},
        b={"alice": user(), "carl": user("carl", status="disable")},
    )
    for name in bench.acls:
        bench.acls[name] = [AclInfo("User:alice", POLICIES), AclInfo("Role:x", POLICIES)]
    alice, bob, carl = bench.run(bench.users.users())
    assert (alice.name, alice.policies, alice.groups) == (
        "alice",
        POLICIES,
        ["broker-a", "broker-b"],
    )
    assert (alice.missing_at, alice.differs, alice.is_super) == ([], False, False)
    assert (bob.groups, bob.missing_at, bob.differs) == (["broker-a"], ["broker-b"], True)
    assert (carl.status, carl.missing_at, carl.differs) == ("enable", [], True)
    with pytest.raises(UserNotFoundError) as caught:
        bench.run(bench.users.user("dora"))
    assert caught.value.name == "dora"


def test_a_user_is_made_at_every_group_and_not_where_one_is_there() -> None:
    bench = Bench()
    bench.run(bench.users.create("alice", "a secret key", is_super=True))
    asked = bench.asked(RequestCode.AUTH_CREATE_USER)
    assert [address for address, _ in asked] == [MASTER, OTHER_MASTER]
    assert msgspec.json.decode(asked[0][1].body, type=UserInfo) == UserInfo(
        "a secret key", None, "Super", "alice"
    )
    assert asked[0][1].decode_header(UserRequestHeader).username == "alice"
    taken = Bench(b={"alice": user()})
    with pytest.raises(UserExistsError) as caught:
        taken.run(taken.users.create("alice", "a secret key"))
    assert (caught.value.name, caught.value.groups) == ("alice", ("broker-b",))
    assert taken.asked(RequestCode.AUTH_CREATE_USER) == []


def test_a_change_reaches_groups_that_missed_an_earlier_one() -> None:
    bench = Bench(a={"alice": user(kind="Super")})
    with pytest.raises(BrokerError) as caught:
        bench.run(bench.users.alter("alice", is_enabled=False))
    assert caught.value.address == "broker-b"
    assert bench.asked(RequestCode.AUTH_UPDATE_USER) == []
    bench.run(bench.users.alter("alice", secret="another key", is_enabled=False))
    ((address, made),) = bench.asked(RequestCode.AUTH_CREATE_USER)
    assert address == OTHER_MASTER
    wanted = UserInfo("another key", "disable", "Super", "alice")
    assert msgspec.json.decode(made.body, type=UserInfo) == wanted
    ((address, changed),) = bench.asked(RequestCode.AUTH_UPDATE_USER)
    assert (address, changed.body) == (MASTER, made.body)


def test_without_a_secret_the_old_one_stays() -> None:
    bench = Bench(a={"alice": user()}, b={"alice": user()})
    bench.run(bench.users.alter("alice", is_super=True))
    for _, command in bench.asked(RequestCode.AUTH_UPDATE_USER):
        info = msgspec.json.decode(command.body, type=UserInfo)
        assert (info.password, info.user_type, info.user_status) == (None, "Super", "enable")


def test_a_user_that_nobody_knows_is_not_deleted() -> None:
    bench = Bench(a={"alice": user()})
    bench.run(bench.users.delete("alice"))
    assert len(bench.asked(RequestCode.AUTH_DELETE_USER)) == 2
    with pytest.raises(UserNotFoundError):
        bench.run(bench.users.delete("bob"))


def test_rights_are_set_and_taken_at_every_group() -> None:
    bench = Bench()
    bench.run(bench.users.grant("alice", [ENTRY], policy_type=PolicyType.DEFAULT))
    for _, command in bench.asked(RequestCode.AUTH_UPDATE_ACL):
        info = msgspec.json.decode(command.body, type=AclInfo)
        assert info == AclInfo("User:alice", [PolicyInfo("Default", [ENTRY])])
    assert bench.run(bench.users.revoke("alice", "Topic:T")) is True
    ((_, first), (_, second)) = bench.asked(RequestCode.AUTH_DELETE_ACL)
    for command in (first, second):
        header = command.decode_header(DeleteAclRequestHeader)
        assert (header.subject, header.policy_type, header.resource) == (
            "User:alice",
            "Custom",
            "Topic:T",
        )


def test_an_entry_that_is_not_there_is_no_error_and_another_refusal_is() -> None:
    bench = Bench()
    refusals = {"broker-a": "The acl is not exist.", "broker-b": "The acl is not exist."}
    bench.answer(
        RequestCode.AUTH_DELETE_ACL,
        lambda request, name: answer_to(request, ResponseCode.NO_PERMISSION, remark=refusals[name]),
    )
    assert bench.run(bench.users.revoke("alice")) is False
    refusals["broker-b"] = "no permission"
    with pytest.raises(BrokerError) as caught:
        bench.run(bench.users.revoke("alice"))
    assert caught.value.address == OTHER_MASTER


def test_bounds_are_changed_as_one_and_go_to_groups_that_missed_the_user() -> None:
    bounded = msgspec.structs.replace(user(), quota=UserQuota(requests_per_second=5))
    bench = Bench(a={"alice": bounded}, b={"alice": bounded})
    assert bench.run(bench.users.user("alice")).quota == bounded.quota
    bench.run(bench.users.alter("alice", is_super=True))
    bench.run(bench.users.alter("alice", quota=UserQuota()))
    sent = {
        group: [
            msgspec.json.decode(command.body, type=UserInfo).quota
            for address, command in bench.asked(RequestCode.AUTH_UPDATE_USER)
            if address == group
        ]
        for group in (MASTER, OTHER_MASTER)
    }
    # Not named, they stay; an empty one is that of the cluster file.
    assert sent == {key: [None, UserQuota()] for key in (MASTER, OTHER_MASTER)}
    bench = Bench(a={"alice": bounded})
    bench.run(bench.users.alter("alice", secret="another key"))
    ((_, made),) = bench.asked(RequestCode.AUTH_CREATE_USER)
    assert msgspec.json.decode(made.body, type=UserInfo).quota == bounded.quota
