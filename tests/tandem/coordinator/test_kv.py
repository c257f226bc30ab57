import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import (
    Change,
    CompactedError,
    Condition,
    Deleted,
    DeleteOperation,
    Found,
    InvalidArgumentError,
    Item,
    KeyEvent,
    LeaseExistsError,
    LeaseNotFoundError,
    Operation,
    Outcome,
    Put,
    PutOperation,
    RangeOperation,
    Relation,
    RevisionGapError,
    StoreImage,
    Target,
    prefix_end,
)


def put(store: KeyValueStore, key: bytes, value: bytes = b"v", lease_id: int = 0) -> Outcome:
    return store.transact([], [PutOperation(key, value, lease_id)], [], 0.0)


def keys(store: KeyValueStore, now: float = 0.0) -> list[bytes]:
    return [item.key for item in store.range(b"\0", b"\0", now)]


def test_revisions_versions_and_creation_are_counted_like_in_etcd() -> None:
    store = KeyValueStore()
    assert store.revision == 1
    put(store, b"a", b"1")
    put(store, b"b", b"2")
    put(store, b"a", b"3")
    assert store.range(b"a", b"", 0.0) == (Item(b"a", b"3", 2, 4, 2),)
    store.transact([], [DeleteOperation(b"a")], [], 0.0)
    put(store, b"a", b"4")
    assert store.range(b"a", b"", 0.0) == (Item(b"a", b"4", 6, 6, 1),)


def test_what_changes_no_key_makes_no_revision() -> None:
    store = KeyValueStore()
    store.grant(7, 5, 0.0)
    outcome = store.transact([], [DeleteOperation(b"a"), RangeOperation(b"a")], [], 0.0)
    assert outcome == Outcome(succeeded=True, revision=1, answers=(Deleted(0), Found(())))
    store.revoke(7, 0.0)
    assert store.revision == 1


def test_a_transaction_does_all_or_takes_the_other_branch() -> None:
    store = KeyValueStore()
    put(store, b"a")
    absent = Condition(b"a", Target.MOD, Relation.EQUAL, 0)
    done = store.transact([absent], [PutOperation(b"x", b"")], [RangeOperation(b"a")], 0.0)
    assert done == Outcome(
        succeeded=False, revision=2, answers=(Found((Item(b"a", b"v", 2, 2, 1),)),)
    )
    same = Condition(b"a", Target.MOD, Relation.EQUAL, 2)
    operations: list[Operation] = [
        PutOperation(b"x", b"1"),
        DeleteOperation(b"a"),
        RangeOperation(b"a", b"z"),
    ]
    done = store.transact([same], operations, [], 0.0)
    seen = Found((Item(b"x", b"1", 3, 3, 1),))
    assert done == Outcome(succeeded=True, revision=3, answers=(Put(), Deleted(1), seen))
    assert keys(store) == [b"x"]


@pytest.mark.parametrize(
    ("target", "relation", "value", "holds"),
    [
        (Target.VERSION, Relation.EQUAL, 2, True),
        (Target.VERSION, Relation.GREATER, 2, False),
        (Target.CREATE, Relation.LESS, 3, True),
        (Target.MOD, Relation.NOT_EQUAL, 2, True),
        (Target.VALUE, Relation.EQUAL, b"two", True),
        (Target.VALUE, Relation.LESS, b"two", False),
        (Target.LEASE, Relation.EQUAL, 0, True),
    ],
)
def test_conditions_compare_what_they_name(
    target: Target, relation: Relation, value: int | bytes, *, holds: bool
) -> None:
    store = KeyValueStore()
    put(store, b"a", b"one")
    put(store, b"a", b"two")
    condition = Condition(b"a", target, relation, value)
    assert store.transact([condition], [], [], 0.0).succeeded is holds


def test_a_missing_key_is_all_zeros_but_has_no_value() -> None:
    store = KeyValueStore()
    for target in (Target.VERSION, Target.CREATE, Target.MOD, Target.LEASE):
        zero = Condition(b"a", target, Relation.EQUAL, 0)
        assert store.transact([zero], [], [], 0.0).succeeded
    for relation in Relation:
        value = Condition(b"a", Target.VALUE, relation, b"")
        assert not store.transact([value], [], [], 0.0).succeeded


def test_a_condition_of_the_wrong_type_is_refused() -> None:
    store = KeyValueStore()
    put(store, b"a")
    with pytest.raises(InvalidArgumentError):
        store.transact([Condition(b"a", Target.VERSION, Relation.EQUAL, b"2")], [], [], 0.0)


@pytest.mark.parametrize(
    "operations",
    [
        [PutOperation(b"", b"")],
        [PutOperation(b"a", b""), PutOperation(b"a", b"")],
        [DeleteOperation(b"a", b"c"), PutOperation(b"b", b"")],
        [RangeOperation(b"a")] * 129,
    ],
)
def test_a_transaction_that_makes_no_sense_changes_nothing(operations: list[Operation]) -> None:
    store = KeyValueStore()
    with pytest.raises(InvalidArgumentError):
        store.transact([], operations, [], 0.0)
    assert store.revision == 1


def test_the_keys_of_a_lease_go_with_it_in_one_revision() -> None:
    store = KeyValueStore()
    store.grant(7, 5, 0.0)
    put(store, b"a", lease_id=7)
    put(store, b"b", lease_id=7)
    put(store, b"c")
    store.revoke(7, 1.0)
    assert keys(store) == [b"c"]
    assert store.events(5, b"\0", b"\0", 6) == (KeyEvent(b"a", None, 5), KeyEvent(b"b", None, 5))


def test_a_lease_is_over_at_its_deadline_whoever_asks_first() -> None:
    store = KeyValueStore()
    store.grant(7, 5, 0.0)
    put(store, b"a", lease_id=7)
    assert store.keep_alive(7, 4.0) == 5
    assert keys(store, 8.9) == [b"a"]
    assert store.next_expiry == 9.0
    assert store.time_left(7, 8.0) == 1.0
    with pytest.raises(LeaseNotFoundError):
        store.keep_alive(7, 9.0)
    assert keys(store, 9.0) == []
    assert store.next_expiry == math.inf
    assert store.time_left(7, 9.0) == 0.0


def test_a_put_without_the_lease_takes_the_key_out_of_it() -> None:
    store = KeyValueStore()
    store.grant(7, 5, 0.0)
    put(store, b"a", lease_id=7)
    put(store, b"a")
    store.expire(5.0)
    assert keys(store, 5.0) == [b"a"]


def test_a_put_with_a_lease_that_is_over_changes_nothing() -> None:
    store = KeyValueStore()
    with pytest.raises(LeaseNotFoundError):
        store.transact([], [PutOperation(b"b", b""), PutOperation(b"a", b"", 9)], [], 0.0)
    assert keys(store) == []


def test_leases_are_never_shorter_than_the_coordinator_can_hold() -> None:
    store = KeyValueStore()
    assert store.grant(7, 1, 0.0).ttl_seconds == 2
    with pytest.raises(LeaseExistsError):
        store.grant(7, 5, 0.0)
    with pytest.raises(InvalidArgumentError):
        store.grant(8, 10**10, 0.0)
    with pytest.raises(InvalidArgumentError):
        store.grant(0, 5, 0.0)


def test_a_lease_gets_more_time_when_nobody_could_renew_it() -> None:
    store = KeyValueStore()
    store.grant(7, 5, 0.0)
    store.postpone(10.0)
    assert store.keep_alive(7, 14.9) == 5
    store.rearm(100.0)
    assert store.next_expiry == 105.0


def test_the_history_tells_a_range_of_keys_and_of_revisions() -> None:
    store = KeyValueStore()
    put(store, b"a")
    put(store, b"b")
    put(store, b"a")
    assert [event.revision for event in store.events(2, b"a", b"", 5)] == [2, 4]
    assert [event.revision for event in store.events(3, b"a", b"c", 4)] == [3]
    assert store.events(5, b"a", b"", 9) == ()


def test_a_watch_from_before_the_history_is_told_where_it_begins() -> None:
    store = KeyValueStore(history_revisions_max=3)
    for _ in range(5):
        put(store, b"a")
    with pytest.raises(CompactedError) as caught:
        store.events(3, b"a", b"", 7)
    assert caught.value.compact_revision == 4
    store.compact(6)
    with pytest.raises(CompactedError):
        store.events(5, b"a", b"", 7)
    assert len(store.events(6, b"a", b"", 7)) == 1


def test_a_change_that_does_not_follow_is_refused() -> None:
    store = KeyValueStore()
    with pytest.raises(RevisionGapError) as caught:
        store.apply(Change(revision=4, puts=(Item(b"a", b"", 4, 4, 1),)), 0.0)
    assert (caught.value.revision, caught.value.last) == (4, 1)


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"a/", b"a0"), (b"a\xff", b"b"), (b"\xff", b"\0"), (b"", b"\0")]
)
def test_the_end_of_a_prefix(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end


@given(st.binary(min_size=1, max_size=4), st.binary(max_size=4))
def test_what_begins_with_a_prefix_is_in_its_range(prefix: bytes, rest: bytes) -> None:
    store = KeyValueStore()
    put(store, prefix + rest)
    assert len(store.range(prefix, prefix_end(prefix), 0.0)) == 1


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
LEASES = st.integers(1, 3)


class ReplayedStore(RuleBasedStateMachine):
    """Whatever happens to a store, its changes and its image bring it back."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.changes: list[Change] = []
        self.store = KeyValueStore(on_change=self.changes.append)
        self.image = StoreImage(1, (), ())

    @rule(lease=LEASES, ttl=st.integers(2, 6))
    def grant(self, lease: int, ttl: int) -> None:
        if self.store.time_left(lease, self.now) <= 0:
            self.store.grant(lease, ttl, self.now)

    @rule(lease=LEASES)
    def revoke(self, lease: int) -> None:
        if self.store.time_left(lease, self.now) > 0:
            self.store.revoke(lease, self.now)

    @rule(lease=LEASES)
    def keep_alive(self, lease: int) -> None:
        if self.store.time_left(lease, self.now) > 0:
            self.store.keep_alive(lease, self.now)

    @rule(key=KEYS, lease=st.just(0) | LEASES)
    def put(self, key: bytes, lease: int) -> None:
        if not lease or self.store.time_left(lease, self.now) > 0:
            self.store.transact([], [PutOperation(key, b"v", lease)], [], self.now)

    @rule(key=KEYS, end=st.just(b"") | KEYS)
    def delete(self, key: bytes, end: bytes) -> None:
        self.store.transact([], [DeleteOperation(key, end)], [], self.now)

    @rule(seconds=st.floats(0, 4))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.store.expire(self.now)

    @precondition(lambda self: self.changes)
    @rule()
    def snapshot(self) -> None:
        self.image = self.store.image()
        self.changes.clear()

    @invariant()
    def comes_back(self) -> None:
        again = KeyValueStore()
        again.restore(self.image, self.now)
        for change in self.changes:
            again.apply(change, self.now)
        mine, other = self.store.image(), again.image()
        assert set(mine.items) == set(other.items)
        assert (mine.revision, mine.leases) == (other.revision, other.leases)
        again.expire(self.now + 100)
        assert not any(item.lease_id for item in again.image().items)


TestReplayedStore = ReplayedStore.TestCase
