"""RocketMQ's older file of accounts, read as RocketMQ reads it, and no wider."""

from pathlib import Path

import pytest

from tandem.cli.output import CommandError
from tandem.cli.plain_acl import accounts_of
from tandem.cluster_file.errors import ClusterConfigError
from tandem.wire.access_control import PolicyEntryInfo, PolicyType

FILE = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: 192.168.0.*
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC= sub
  groupPerms:
  - groupA=DENY
- accessKey: rocketmq2
  secretKey: 0123456789
  whiteRemoteAddress:
  admin: true
  topicPerms: [ignored=PUB]
"""
"""As RocketMQ's documents have it."""


def write(directory: Path, text: str) -> Path:
    file = directory / "plain_acl.yml"
    file.write_text(text, encoding="utf-8")
    return file


def entry(resource: str, decision: str, *rights: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource, list(rights), None, decision)


def test_accounts_are_users_with_entries(tmp_path: Path) -> None:
    (first, second), notes = accounts_of(write(tmp_path, FILE))
    assert (first.name, first.secret, first.is_super) == ("RocketMQ", "12345678", False)
    assert first.entries == {
        PolicyType.CUSTOM: [
            entry("Topic:topicA", "Deny", "All"),
            entry("Topic:topicB", "Allow", "Pub", "Sub"),
            entry("Topic:topicC", "Allow", "Sub"),
            entry("Group:groupA", "Deny", "All"),
        ],
        PolicyType.DEFAULT: [entry("Topic:*", "Deny", "All"), entry("Group:*", "Allow", "Sub")],
    }
    # A secret of digits keeps its zero.
    assert (second.name, second.secret, second.is_super) == ("rocketmq2", "0123456789", True)
    assert second.entries == {PolicyType.CUSTOM: [], PolicyType.DEFAULT: []}
    assert len(notes) == 2
    assert notes[0].startswith("globalWhiteRemoteAddresses")
    assert notes[1].startswith("RocketMQ: whiteRemoteAddress")


@pytest.mark.parametrize("text", ["", "---\n", "accounts:\n", "accounts: []\n", "other: 1\n"])
def test_a_file_without_accounts_has_none(tmp_path: Path, text: str) -> None:
    assert accounts_of(write(tmp_path, text)) == ([], [])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("- a\n- b\n", "the file"),
        ("accounts: text\n", "accounts"),
        ("accounts: [text]\n", "accounts[0]"),
        ("accounts: [{accessKey: a}]\n", "accounts[0]"),
        ("accounts: [{accessKey: [a], secretKey: b}]\n", "accounts[0]"),
        ("accounts: [{accessKey: a, secretKey: b, topicPerms: x}]\n", "accounts[0].topicPerms"),
        ("accounts: [{accessKey: a, secretKey: b, topicPerms: [x]}]\n", "accounts[0].topicPerms"),
        # RocketMQ's own migration makes Allow All of these.
        ("accounts: [{accessKey: a, secretKey: b, topicPerms: [x=ANY]}]\n", "accounts[0]"),
        ("accounts: [{accessKey: a, secretKey: b, defaultGroupPerm: PBU}]\n", "defaultGroupPerm"),
    ],
)
def test_what_nobody_understands_is_refused_with_its_place(
    tmp_path: Path, text: str, place: str
) -> None:
    with pytest.raises(CommandError) as caught:
        accounts_of(write(tmp_path, text))
    assert place in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("text", ["a: [", "\x00", "a: *b", "[" * 5_000])
def test_a_file_that_is_none_says_so(tmp_path: Path, text: str) -> None:
    with pytest.raises((CommandError, ClusterConfigError)):
        accounts_of(write(tmp_path, text))
    with pytest.raises(ClusterConfigError):
        accounts_of(tmp_path / "missing.yml")


def test_a_file_that_names_one_thing_many_times_is_read_in_no_time(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 20)}]" for n in range(1, 20)]
    assert accounts_of(write(tmp_path, "\n".join(lines) + "\n")) == ([], [])


def test_a_tag_is_no_more_than_a_text(tmp_path: Path) -> None:
    assert accounts_of(write(tmp_path, "a: !!python/object:os.system {}\n")) == ([], [])
