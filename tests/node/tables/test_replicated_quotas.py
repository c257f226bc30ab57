"""The table of bounds: what its records change, and what a slave makes of its master's answer."""

import msgspec
import pytest

from node.security.users import StoredUser
from node.simulated.disk import SimulatedDisk
from node.tables.node_table import TableFiles
from node.tables.replicated_quotas import (
    AllUsersAndQuotas,
    QuotasChanged,
    QuotasPart,
    QuotasTable,
    quota_changes,
)
from node.tables.replicated_users import AllUsers, UsersDeleted
from tandem.wire.errors import MalformedFrameError
from tandem.wire.user_quota import UserQuota

TEN, NONE = UserQuota(requests_per_second=10), UserQuota(requests_per_second=0)


def test_a_record_sets_what_it_names_and_an_empty_bound_ends_it() -> None:
    part = QuotasPart()
    part.apply(QuotasChanged({"alice": TEN, "bob": NONE}))
    part.apply(QuotasChanged({"carol": TEN, "alice": UserQuota()}))
    assert part.quotas == {"bob": NONE, "carol": TEN}
    copy = part.copy()
    part.apply(UsersDeleted(["bob", "nobody"]))
    assert (part.quotas, copy.quotas) == ({"carol": TEN}, {"bob": NONE, "carol": TEN})


def test_the_file_has_what_counts() -> None:
    disk = SimulatedDisk()
    table = QuotasTable(TableFiles(disk, "s", lambda: 1))
    table.take(QuotasChanged({"alice": TEN}))
    assert QuotasTable(TableFiles(disk, "s", lambda: 1)).part.quotas == {"alice": TEN}


@pytest.mark.parametrize(
    ("own", "masters", "changes"),
    [
        ({}, {}, {}),
        ({"a": TEN}, {"a": TEN}, {}),
        ({"a": TEN}, {"a": NONE}, {"a": NONE}),
        ({"a": TEN, "b": NONE}, {"b": NONE, "c": TEN}, {"a": UserQuota(), "c": TEN}),
        ({"a": TEN}, {}, {"a": UserQuota()}),
    ],
)
def test_a_slave_makes_its_table_like_its_masters(
    own: dict[str, UserQuota], masters: dict[str, UserQuota], changes: dict[str, UserQuota]
) -> None:
    part = QuotasPart(dict(own))
    body = msgspec.json.encode(AllUsersAndQuotas([StoredUser("a", "s")], {}, masters))
    made = list(quota_changes(part, body))
    assert made == ([QuotasChanged(changes)] if changes else [])
    for record in made:
        part.apply(record)
    assert part.quotas == masters
    # What an older slave makes of the same answer.
    assert msgspec.json.decode(body, type=AllUsers).users == [StoredUser("a", "s")]


def test_a_master_of_an_older_version_has_no_bounds() -> None:
    body = msgspec.json.encode(AllUsers([], {}))
    assert list(quota_changes(QuotasPart({"a": TEN}), body)) == [QuotasChanged({"a": UserQuota()})]
    with pytest.raises(MalformedFrameError):
        list(quota_changes(QuotasPart(), b"{"))
