"""`tandem acl`: rights from the command line, and why something is allowed or not."""

import json
from pathlib import Path

import pytest

from tandem.cli.acl import explain
from tandem.cli.output import CommandError
from tandem.client import UserNotFoundError
from tandem.client.user_admin import UserDescription
from tandem.wire.access_control import PolicyEntryInfo, PolicyInfo, Right, parse_resource
from tests.tandem.cli.conftest import Tandem

pytestmark = [pytest.mark.fault, pytest.mark.xdist_group("one cluster of the command line")]


def described(
    *policies: PolicyInfo, kind: str = "Normal", status: str = "enable"
) -> UserDescription:
    return UserDescription("alice", kind, status, list(policies), ["broker-a"])


def custom(*entries: tuple[str, str, str], of: str = "Custom") -> PolicyInfo:
    return PolicyInfo(
        of, [PolicyEntryInfo(what, [right], None, decision) for decision, right, what in entries]
    )


def test_a_decision_names_what_decides_and_what_else_is_about_it() -> None:
    user = described(
        custom(("Allow", "Pub", "Topic:a*"), ("Deny", "Pub", "Topic:ab*"), ("Allow", "Sub", "*")),
        custom(("Allow", "Get", "Topic:*"), of="Default"),
    )
    found = explain(user, Right.PUB, parse_resource("Topic:abc"), "10.0.0.1")
    assert not found.is_allowed
    assert found.decided_by == "Deny Pub on Topic:ab*"
    assert found.also_about_it == [
        "Allow Pub on Topic:a*",
        "Allow Sub on *",
        "Allow Get on Topic:*",
    ]
    found = explain(user, Right.GET, parse_resource("Topic:abc"), "10.0.0.1")
    assert found.is_allowed
    assert "of the default policy" in found.why
    found = explain(user, Right.DELETE, parse_resource("Topic:abc"), "10.0.0.1")
    assert not found.is_allowed
    assert "tandem acl grant alice Delete Topic:abc" in found.why


def test_what_belongs_to_a_group_is_decided_as_the_group() -> None:
    user = described(custom(("Allow", "Sub", "Group:g")))
    for name in ("%RETRY%g", "%DLQ%g"):
        found = explain(user, Right.PUB, parse_resource(f"Topic:{name}"), "10.0.0.1")
        assert found.is_allowed
        assert (found.right, found.resource) == ("Sub", "Group:g")
        assert f"Topic:{name} belongs to Group:g" in found.why


def test_a_super_may_everything_and_who_is_disabled_nothing() -> None:
    asked = (Right.PUB, parse_resource("Topic:T"), "10.0.0.1")
    assert explain(described(kind="Super"), *asked).is_allowed
    assert not explain(described(kind="Super", status="disable"), *asked).is_allowed
    with pytest.raises(ValueError, match="nowhere"):
        explain(described(custom(("Allow", "Pub", "*"))), asked[0], asked[1], "nowhere")


def test_rights_are_granted_denied_listed_checked_and_revoked(tandem: Tandem) -> None:
    tandem("user", "create", "rights")
    said = tandem("acl", "grant", "rights", "Pub,Sub", "Topic:r-*", "--from", "10.0.0.0/8")
    assert said.stdout == "user rights may Pub,Sub Topic:r-*\n"
    tandem("acl", "deny", "rights", "Pub", "Topic:r-1")
    tandem("acl", "grant", "rights", "Get", "Topic:*", "--default")
    rows = json.loads(tandem("acl", "list", "rights", "--format", "json").stdout)
    assert [(row["entry"]["decision"], row["entry"]["resource"]) for row in rows] == [
        ("Deny", "Topic:r-1"),
        ("Allow", "Topic:r-*"),
        ("Allow", "Topic:*"),
    ]
    assert "Topic:r-1" not in tandem("acl", "list", "--resource", "r-*").stdout
    allowed = tandem("acl", "check", "rights", "Pub", "Topic:r-2", "--from", "10.1.1.1")
    assert "decision       allowed" in allowed.stdout
    for address, topic in (("11.1.1.1", "r-2"), ("10.1.1.1", "r-1")):
        line = ("acl", "check", "rights", "Pub", f"Topic:{topic}", "--from", address)
        denied = tandem(*line)
        assert (denied.exit_code, "denied" in denied.stdout) == (1, True)
    tandem("acl", "revoke", "rights", "Topic:r-1")
    with pytest.raises(CommandError):
        tandem("acl", "revoke", "rights", "Topic:r-1")
    tandem("acl", "revoke", "rights", "Topic:*", "--default")
    with pytest.raises(UserNotFoundError):
        tandem("acl", "grant", "nobody", "Pub", "Topic:T")


@pytest.mark.parametrize(
    "line",
    [
        ["grant", "u", "Write", "Topic:T"],
        ["grant", "u", "Pub", "T"],
        ["grant", "u", "Pub", "Topic:T", "--from", "x"],
        ["deny", "u", "", "Topic:T"],
        ["revoke", "u", "T"],
        ["check", "u", "Pub", "Topic:T*"],
        ["check", "u", "Pub", "*"],
    ],
)
def test_what_cannot_be_is_said_before_anybody_is_asked(tandem: Tandem, line: list[str]) -> None:
    assert tandem("acl", *line).exit_code == 2


def test_a_file_of_accounts_is_shown_first_and_imported_when_that_is_said(
    tandem: Tandem, tmp_path: Path
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(
        "accounts:\n- {accessKey: imported, secretKey: '12345678', topicPerms: [T=PUB]}\n"
        "- {accessKey: boss, secretKey: '87654321', admin: true}\n"
    )
    shown = tandem("acl", "import", str(file))
    assert "would be made" in shown.stdout
    assert "nothing was changed" in shown.stdout
    assert "imported" not in tandem("user", "list").stdout
    done = json.loads(tandem("acl", "import", str(file), "--execute", "--format", "json").stdout)
    assert [each["result"] for each in done] == ["made", "made"]
    again = tandem("acl", "import", str(file), "--execute")
    assert "is there already, and stays as it is" in again.stdout
    user = json.loads(tandem("user", "show", "imported", "--format", "json").stdout)
    assert user["policies"][0]["entries"][0]["resource"] == "Topic:T"
