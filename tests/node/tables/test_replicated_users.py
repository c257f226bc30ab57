"""Users and what they may, as tables that the journal and plain files carry."""

import msgspec
import pytest

from node.security.users import StoredUser, UserStatus
from node.simulated.disk import SimulatedDisk
from node.tables.node_table import TableFiles
from node.tables.replicated_users import (
    AclsChanged,
    AclsPart,
    AclsTable,
    AllUsers,
    UsersChanged,
    UsersDeleted,
    UsersPart,
    UsersTable,
    changes_to,
)
from tandem.wire.access_control import PolicyEntryInfo, PolicyInfo
from tandem.wire.errors import MalformedFrameError

ALICE, BOB = StoredUser("alice", "sealed"), StoredUser("bob", "sealed too")
POLICIES = [PolicyInfo("Custom", [PolicyEntryInfo("Topic:T", ["Pub"], None, "Allow")])]


def test_a_record_sets_what_it_names_and_an_end_takes_the_rights_with_it() -> None:
    users, acls = UsersPart(), AclsPart()
    users.apply(UsersChanged([ALICE, BOB]))
    disabled = msgspec.structs.replace(ALICE, status=UserStatus.DISABLE)
    before = users.copy()
    users.apply(UsersChanged([disabled]))
    assert users.users == {"alice": disabled, "bob": BOB}
    assert before.users == {"alice": ALICE, "bob": BOB}
    acls.apply(AclsChanged({"alice": POLICIES, "bob": POLICIES}))
    copied = acls.copy()
    acls.apply(AclsChanged({"bob": []}))
    assert acls.acls == {"alice": POLICIES}
    for part in (users, acls):
        part.apply(UsersDeleted(["alice", "nobody"]))
    assert (users.users, acls.acls) == ({"bob": BOB}, {})
    assert set(copied.acls) == {"alice", "bob"}


def test_a_snapshot_has_everything() -> None:
    users, acls = UsersPart({"alice": ALICE}), AclsPart({"alice": POLICIES})
    others, their_acls = UsersPart({"bob": BOB}), AclsPart()
    others.add(users.content())
    their_acls.add(acls.content())
    assert others.users == {"alice": ALICE, "bob": BOB}
    assert their_acls.acls == acls.acls


def test_a_masters_own_change_counts_when_it_is_confirmed() -> None:
    files = TableFiles(SimulatedDisk(), "s", lambda: 1, is_copy=True)
    users, acls = UsersTable(files), AclsTable(files)
    users.take(UsersChanged([ALICE]))
    acls.take(AclsChanged({"alice": POLICIES}))
    assert (users.part.users, acls.part.acls) == ({}, {})
    before = users.revision
    users.show(UsersPart({"alice": ALICE}), [UsersChanged([ALICE])])
    assert users.part.users == {"alice": ALICE}
    assert users.revision != before


def test_without_a_journal_it_counts_when_it_is_on_disk() -> None:
    disk = SimulatedDisk()
    users = UsersTable(TableFiles(disk, "s", lambda: 1))
    before = users.revision
    users.take(UsersChanged([ALICE]))
    assert users.part.users == {"alice": ALICE}
    assert users.revision != before
    assert UsersTable(TableFiles(disk, "s", lambda: 1)).part.users == {"alice": ALICE}


def test_a_slave_makes_its_tables_like_those_of_its_master() -> None:
    users, acls = UsersPart({"alice": ALICE}), AclsPart({"alice": POLICIES, "bob": POLICIES})
    changed = msgspec.structs.replace(BOB, sealed="another")
    wanted = AllUsers([changed], {"bob": POLICIES, "carol": POLICIES})
    records = list(changes_to(users, acls, msgspec.json.encode(wanted)))
    for record in records:
        for part in (users, acls):
            if type(record) in part.records():
                part.apply(record)  # type: ignore[arg-type]
    assert users.users == {"bob": changed}
    assert acls.acls == {"bob": POLICIES, "carol": POLICIES}
    assert list(changes_to(users, acls, msgspec.json.encode(wanted))) == []
    with pytest.raises(MalformedFrameError):
        list(changes_to(users, acls, b"{"))
