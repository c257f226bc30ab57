"""Requests about what users may, as RocketMQ's tools send them."""

from typing import Any

import msgspec
import pytest

from tandem.wire.access_control import ENTRIES_MAX
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.handlers.user_world import Users

CREATE, UPDATE = RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL
DELETE, GET, LIST = (
    RequestCode.AUTH_DELETE_ACL,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
)
REFUSED = ResponseCode.NO_PERMISSION

FIRST = {
    "policies": [
        {
            "entries": [
                {
                    "actions": ["Pub", "Sub"],
                    "decision": "Allow",
                    "resource": resource,
                    "sourceIps": ["127.0.0.0/8", "10.0.0.1"],
                }
                for resource in ("Topic:T1", "Group:g1")
            ]
        }
    ],
    "subject": "User:alice",
}
"""What mqadmin createAcl -s User:alice -r Topic:T1,Group:g1 -a Pub,Sub -d Allow -i ... sends."""


class Acls(Users):
    """A broker with a user."""

    def __init__(self) -> None:
        super().__init__()
        self.create()

    def give(self, code: int, acl: dict[str, Any] | None, **ext: str) -> RemotingCommand:
        return self.client.call(code, ext, b"" if acl is None else msgspec.json.encode(acl))

    def got(self, subject: str = "User:alice") -> Any:  # noqa: ANN401 - as JSON
        body = self.client.call(GET, {"subject": subject}).body
        return msgspec.json.decode(body) if body else None


def acl(resource: str, *actions: str, decision: str = "Allow", **more: object) -> dict[str, Any]:
    entry = {"resource": resource, "actions": list(actions), "decision": decision} | more
    return {"subject": "User:alice", "policies": [{"entries": [entry]}]}


async def test_entries_are_made_replaced_and_deleted() -> None:
    acls = Acls()
    assert acls.give(CREATE, FIRST, subject="User:alice").code == 0
    policy = {"policyType": "Custom", "entries": FIRST["policies"][0]["entries"]}  # type: ignore[index]
    assert acls.got() == {"subject": "User:alice", "policies": [policy]}
    changed = acl("topic:T1", "Sub", decision="Deny")
    assert acls.give(UPDATE, changed, subject="User:alice").code == 0
    assert [each["actions"] for each in acls.got()["policies"][0]["entries"]] == [
        ["Sub"],
        ["Pub", "Sub"],
    ]
    answer = acls.client.call(DELETE, {"subject": "User:alice", "resource": "Topic:T1"})
    assert answer.code == 0
    assert [each["resource"] for each in acls.got()["policies"][0]["entries"]] == ["Group:g1"]
    assert acls.client.call(DELETE, {"subject": "User:alice"}).code == 0
    assert acls.got() is None
    gone = acls.client.call(DELETE, {"subject": "User:alice"})
    assert (gone.code, gone.remark) == (REFUSED, "The acl is not exist.")


async def test_a_list_is_filtered_by_user_and_resource() -> None:
    acls = Acls()
    acls.create("bob")
    acls.give(CREATE, FIRST)
    acls.give(CREATE, acl("Topic:T1", "Pub") | {"subject": "User:bob"})

    def listed(**ext: str) -> list[tuple[str, list[str]]]:
        found = msgspec.json.decode(acls.client.call(LIST, ext).body)
        return [
            (each["subject"], [e["resource"] for p in each["policies"] for e in p["entries"]])
            for each in found
        ]

    assert listed() == [("User:alice", ["Topic:T1", "Group:g1"]), ("User:bob", ["Topic:T1"])]
    assert listed(subjectFilter="bob") == [("User:bob", ["Topic:T1"])]
    assert listed(resourceFilter="g1") == [("User:alice", ["Group:g1"])]
    assert listed(subjectFilter="bob", resourceFilter="g1") == []


@pytest.mark.parametrize(
    ("given", "remark"),
    [
        (acl("Topic:T1", "Pub") | {"subject": "User:nobody"}, "The subject of User:nobody"),
        (acl("Topic:T1", "Pub") | {"subject": "Role:alice"}, "The subject of Role:alice"),
        (acl("T1", "Pub"), "The resource is null."),
        (acl("Topic:T1"), "The actions is empty."),
        (acl("Topic:T1", "Any"), "The actions can not be Any."),
        (acl("Topic:T1", "Pub", decision=""), "The decision is null or illegal."),
        (acl("Topic:T1", "Pub", sourceIps=["127.0.0.*"]), "The source ip is invalid."),
        ({"subject": "User:alice"}, "The resource is null."),
        ({"subject": "User:alice", "policies": [{"entries": []}]}, "The resource is null."),
    ],
)
async def test_what_cannot_be_is_refused_in_rocketmqs_words(
    given: dict[str, Any], remark: str
) -> None:
    acls = Acls()
    answer = acls.give(CREATE, given)
    assert answer.code == REFUSED
    assert str(answer.remark).startswith(remark)
    assert acls.got() is None


async def test_an_acl_that_would_be_too_large_stays_as_it_was() -> None:
    acls = Acls()
    for number in range(ENTRIES_MAX):
        assert acls.give(CREATE, acl(f"Topic:T{number}", "Pub")).code == 0
    before = acls.got()
    assert acls.give(CREATE, acl("Topic:U", "Pub")).code == REFUSED
    assert acls.got() == before


async def test_it_ends_with_its_user() -> None:
    acls = Acls()
    acls.give(CREATE, FIRST)
    acls.ask(RequestCode.AUTH_DELETE_USER, "alice")
    acls.create()
    assert acls.got() is None


async def test_a_node_that_is_not_the_master_has_nothing_to_do() -> None:
    acls = Acls()
    acls.replication.is_master = False
    assert acls.give(CREATE, FIRST).code == 0
    assert acls.client.call(DELETE, {"subject": "User:alice"}).code == 0
    assert acls.got() is None
