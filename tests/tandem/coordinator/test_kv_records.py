import pytest

from tandem.coordinator.kv_records import (
    CompactedError,
    KeyValueError,
    LeaseExistsError,
    LeaseNotFoundError,
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LeaseNotFoundError(), "etcdserver: requested lease not found"),
        (LeaseExistsError(), "etcdserver: lease already exists"),
        (CompactedError(7), "etcdserver: mvcc: required revision has been compacted"),
    ],
)
def test_errors_speak_as_etcd_does(error: KeyValueError, words: str) -> None:
    """etcd, api/v3rpc/rpctypes/error.go: clients compare these texts."""
    assert str(error) == words


def test_what_was_compacted_says_where_history_begins() -> None:
    assert CompactedError(7).compact_revision == 7
