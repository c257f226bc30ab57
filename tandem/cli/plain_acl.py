"""RocketMQ's older access control, `plain_acl.yml`, as users and entries.

    accounts:
    - accessKey: RocketMQ
      secretKey: 12345678
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms: [topicA=DENY, topicB=PUB|SUB]
      groupPerms: [groupA=DENY]

What RocketMQ's own migration loses or widens is said, or refused: addresses that were let in
without a signature, and permissions that nobody can read, which become All there.

Source: RocketMQ 5.3.3, AuthMigrator, PlainAccessConfig.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from tandem.cli.output import WRONG_USAGE, CommandError
from tandem.wire.access_control import PolicyEntryInfo, PolicyType

_RIGHTS: Final = {
    "PUB": ["Pub"],
    "SUB": ["Sub"],
    "PUB|SUB": ["Pub", "Sub"],
    "SUB|PUB": ["Pub", "Sub"],
}
_DENY: Final = "DENY"


class Account(msgspec.Struct, frozen=True):
    """One account, as a user."""

    name: str
    secret: str
    is_super: bool
    entries: dict[PolicyType, list[PolicyEntryInfo]]


def accounts_of(file: Path) -> tuple[list[Account], list[str]]:
    """Read a file; return its accounts, and what of it cannot be carried over, in words.

    Raises:
        CommandError: it cannot be read, or says what nobody understands.
    """
    said = _read(file)
    notes = []
    if said.get("globalWhiteRemoteAddresses"):
        notes.append(
            "globalWhiteRemoteAddresses let in whoever came from there without a signature; nobody"
            " is let in so here: give those clients a user"
        )
    found = []
    accounts = said.get("accounts") or []
    if not isinstance(accounts, list):
        raise _unreadable(file, "accounts", "is no list")
    for number, account in enumerate(accounts):
        place = f"accounts[{number}]"
        if not isinstance(account, dict):
            raise _unreadable(file, place, "is no account")
        found.append(_account(file, place, account))
        if account.get("whiteRemoteAddress"):
            notes.append(
                f"{found[-1].name}: whiteRemoteAddress let in this account from there without a"
                " signature; here it signs always"
            )
    return found, notes


def _read(file: Path) -> dict[str, Any]:
    from tandem.cluster_file.yaml_reader import compose

    said = _plain(compose(file), {})
    if said in (None, ""):
        return {}
    if not isinstance(said, dict):
        raise _unreadable(file, "the file", "has no accounts")
    return said


def _plain(node: yaml.Node | None, known: dict[int, Any]) -> Any:  # noqa: ANN401 - texts, lists, maps
    """Return what a node says: texts as they are written. What is named twice is one thing."""
    if node is None or id(node) in known:
        return known.get(id(node))
    found: Any = None
    match node:
        case yaml.ScalarNode():
            found = node.value
        case yaml.SequenceNode():
            found = [_plain(each, known) for each in node.value]
        case yaml.MappingNode():
            found = {str(key.value): _plain(value, known) for key, value in node.value}
    known[id(node)] = found
    return found


def _account(file: Path, place: str, account: dict[str, Any]) -> Account:
    name, secret = _text(account, "accessKey"), _text(account, "secretKey")
    if not name or not secret:
        raise _unreadable(file, place, "has no accessKey or no secretKey")
    entries: dict[PolicyType, list[PolicyEntryInfo]] = {each: [] for each in PolicyType}
    is_super = _text(account, "admin").lower() == "true"
    if not is_super:
        for kind in ("Topic", "Group"):
            key = f"{kind.lower()}Perms"
            perms = account.get(key) or []
            if not isinstance(perms, list):
                raise _unreadable(file, f"{place}.{key}", "is no list")
            for perm in perms:
                resource, sign, right = str(perm).rpartition("=")
                if not sign or not resource:
                    raise _unreadable(file, f"{place}.{key}", f"{perm!r} is not NAME=PERMISSION")
                where = f"{place}.{key}, {resource}"
                entries[PolicyType.CUSTOM].append(
                    _entry(file, where, f"{kind}:{resource.strip()}", right)
                )
            of_rest = f"default{kind}Perm"
            if right := _text(account, of_rest):
                entries[PolicyType.DEFAULT].append(
                    _entry(file, f"{place}.{of_rest}", f"{kind}:*", right)
                )
    return Account(name, secret, is_super, entries)


def _entry(file: Path, place: str, resource: str, right: str) -> PolicyEntryInfo:
    word = "".join(right.split()).upper()
    if word == _DENY:
        return PolicyEntryInfo(resource, ["All"], None, "Deny")
    rights = _RIGHTS.get(word)
    if rights is None:
        known = ", ".join((*_RIGHTS, _DENY))
        raise _unreadable(file, place, f"{right!r} is no permission; there are {known}")
    return PolicyEntryInfo(resource, rights, None, "Allow")


def _text(account: dict[str, Any], key: str) -> str:
    value = account.get(key)
    return value.strip() if isinstance(value, str) else ""


def _unreadable(file: Path, place: str, what: str) -> CommandError:
    return CommandError(f"{file}: {place} {what}", WRONG_USAGE)
