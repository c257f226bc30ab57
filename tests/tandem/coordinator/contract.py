"""What every coordinator must do: run against etcd, the embedded one, and the simulated one.

A stand-in that passes a test the real thing would fail makes every simulated run worthless, so all
are held to the same words. Each check gets a coordinator and a prefix that nobody else uses; leases
of the checks that wait live 2 s, the shortest that etcd grants.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import trio

from tandem.coordinator.interface import (
    Compare,
    Coordinator,
    CoordinatorUnavailableError,
    Delete,
    Event,
    KeyValue,
    Lease,
    LeaseLostError,
    NoAnswer,
    Put,
)
from tests.support.patience import PATIENCE_SECONDS

ABSENT_LEASE: Final = 4711


async def put(coordinator: Coordinator, key: str, value: bytes = b"v", lease_id: int = 0) -> int:
    """Write a key whatever it was; return the revision."""
    result = await coordinator.transact([], [Put(key, value, lease_id)])
    assert result.succeeded
    return result.revision


async def _nothing_is_there_at_first(coordinator: Coordinator, prefix: str) -> None:
    snapshot = await coordinator.read(prefix)
    assert snapshot.values == {}
    assert snapshot.revision >= 1


async def _what_was_written_is_read(coordinator: Coordinator, prefix: str) -> None:
    first = await put(coordinator, f"{prefix}a", b"\x00\xff{}")
    second = await put(coordinator, f"{prefix}b/c", b"")
    third = await put(coordinator, f"{prefix}a", b"again")
    await put(coordinator, f"{prefix[:-1]}0", b"after the last of the prefix")
    snapshot = await coordinator.read(prefix)
    assert snapshot.values == {
        f"{prefix}a": KeyValue(f"{prefix}a", b"again", first, third, 0),
        f"{prefix}b/c": KeyValue(f"{prefix}b/c", b"", second, second, 0),
    }
    assert first < second < third <= snapshot.revision


async def _a_transaction_is_done_if_all_compares_hold(
    coordinator: Coordinator, prefix: str
) -> None:
    a, b, c = f"{prefix}a", f"{prefix}b", f"{prefix}c"
    first = await put(coordinator, a)
    result = await coordinator.transact(
        [Compare(a, first), Compare(b, 0)], [Put(b, b"1"), Put(c, b"2"), Delete(a)]
    )
    assert result.succeeded
    values = (await coordinator.read(prefix)).values
    assert {key: value.mod_revision for key, value in values.items()} == {
        b: result.revision,
        c: result.revision,
    }


async def _a_transaction_does_nothing_if_one_does_not(
    coordinator: Coordinator, prefix: str
) -> None:
    a, b = f"{prefix}a", f"{prefix}b"
    first = await put(coordinator, a)
    await put(coordinator, a)
    before = await coordinator.read(prefix)
    for compares in ([Compare(a, first)], [Compare(b, 0), Compare(a, 0)], [Compare(b, first)]):
        result = await coordinator.transact(compares, [Put(b, b"1"), Delete(a)])
        assert not result.succeeded
        assert result.revision >= before.revision
    assert (await coordinator.read(prefix)).values == before.values


async def _of_two_who_compare_one_wins(coordinator: Coordinator, prefix: str) -> None:
    won: list[int] = []

    async def run(candidate: int) -> None:
        key = f"{prefix}leader"
        result = await coordinator.transact([Compare(key, 0)], [Put(key, str(candidate).encode())])
        if result.succeeded:
            won.append(candidate)

    async with trio.open_nursery() as nursery:
        for candidate in range(8):
            nursery.start_soon(run, candidate)
    assert len(won) == 1
    values = (await coordinator.read(prefix)).values
    assert values[f"{prefix}leader"].value == str(won[0]).encode()


async def _a_deleted_key_is_gone_and_deleting_it_again_is_harmless(
    coordinator: Coordinator, prefix: str
) -> None:
    await put(coordinator, f"{prefix}a")
    for _ in range(2):
        assert (await coordinator.transact([], [Delete(f"{prefix}a")])).succeeded
    assert (await coordinator.read(prefix)).values == {}


async def _a_key_made_anew_has_a_new_creation(coordinator: Coordinator, prefix: str) -> None:
    key = f"{prefix}a"
    first = await put(coordinator, key)
    await coordinator.transact([], [Delete(key)])
    again = await put(coordinator, key)
    value = (await coordinator.read(prefix)).values[key]
    assert value.create_revision == value.mod_revision == again > first
    assert not (await coordinator.transact([Compare(key, first)], [Delete(key)])).succeeded


async def _keys_go_with_their_lease(coordinator: Coordinator, prefix: str) -> None:
    lease = await coordinator.grant(60)
    assert lease.ttl_seconds >= 60
    await put(coordinator, f"{prefix}a", lease_id=lease.lease_id)
    await put(coordinator, f"{prefix}b", lease_id=lease.lease_id)
    await put(coordinator, f"{prefix}c")
    values = (await coordinator.read(prefix)).values
    assert values[f"{prefix}a"].lease_id == lease.lease_id
    assert values[f"{prefix}c"].lease_id == 0
    await coordinator.revoke(lease.lease_id)
    assert list((await coordinator.read(prefix)).values) == [f"{prefix}c"]


async def _a_key_leaves_its_lease_when_it_is_written_without(
    coordinator: Coordinator, prefix: str
) -> None:
    first, second = await coordinator.grant(60), await coordinator.grant(60)
    await put(coordinator, f"{prefix}a", lease_id=first.lease_id)
    await put(coordinator, f"{prefix}b", lease_id=first.lease_id)
    await put(coordinator, f"{prefix}a")
    await put(coordinator, f"{prefix}b", lease_id=second.lease_id)
    await coordinator.revoke(first.lease_id)
    assert sorted((await coordinator.read(prefix)).values) == [f"{prefix}a", f"{prefix}b"]
    await coordinator.revoke(second.lease_id)
    assert list((await coordinator.read(prefix)).values) == [f"{prefix}a"]


async def _a_lease_that_is_gone_is_told(coordinator: Coordinator, prefix: str) -> None:
    lease = await coordinator.grant(60)
    assert lease.lease_id != (await coordinator.grant(60)).lease_id
    await coordinator.revoke(lease.lease_id)
    await coordinator.revoke(lease.lease_id)
    for lease_id in (lease.lease_id, ABSENT_LEASE):
        with pytest.raises(LeaseLostError):
            await coordinator.keep_alive(lease_id)
        with pytest.raises(LeaseLostError):
            await coordinator.transact(
                [], [Put(f"{prefix}a", b""), Put(f"{prefix}b", b"", lease_id)]
            )
    assert (await coordinator.read(prefix)).values == {}


async def _kept_alive(coordinator: Coordinator, key: str) -> Lease | None:
    """Keep a lease alive for longer than it lives by itself.

    Returns:
        The lease; None if it ended because this process had to wait for a processor.
    """
    lease = await coordinator.grant(2)
    kept_at = granted_at = trio.current_time()
    try:
        await put(coordinator, key, lease_id=lease.lease_id)
        while trio.current_time() < granted_at + 1.5 * lease.ttl_seconds:
            await trio.sleep(0.1)
            assert await coordinator.keep_alive(lease.lease_id) == lease.ttl_seconds
            kept_at = trio.current_time()
        assert list((await coordinator.read(key)).values) == [key]
    except (LeaseLostError, AssertionError):
        if trio.current_time() < kept_at + lease.ttl_seconds / 2:
            raise
        return None
    return lease


async def _a_lease_lives_as_long_as_it_is_kept_alive(coordinator: Coordinator, prefix: str) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while (lease := await _kept_alive(coordinator, f"{prefix}a")) is None:
            pass
    with trio.fail_after(PATIENCE_SECONDS):
        while (await coordinator.read(prefix)).values:
            await trio.sleep(0.1)
    with pytest.raises(LeaseLostError):
        await coordinator.keep_alive(lease.lease_id)


async def _short_leases_are_made_longer(coordinator: Coordinator, prefix: str) -> None:
    lease = await coordinator.grant(1)
    assert lease.ttl_seconds == 2
    granted_at = trio.current_time()
    try:
        await put(coordinator, f"{prefix}a", lease_id=lease.lease_id)
    except LeaseLostError:
        assert trio.current_time() > granted_at + 1


async def _a_watch_tells_every_change_in_order(coordinator: Coordinator, prefix: str) -> None:
    start = (await coordinator.read(prefix)).revision + 1
    lease = await coordinator.grant(60)
    a, b = f"{prefix}a", f"{prefix}b"
    async with coordinator.watch(prefix, start) as batches:
        first = await put(coordinator, a, b"1", lease.lease_id)
        second = await put(coordinator, a, b"2", lease.lease_id)
        await put(coordinator, f"{prefix[:-1]}0", b"not of this prefix")
        third = (await coordinator.transact([], [Delete(a), Put(b, b"3", lease.lease_id)])).revision
        await coordinator.revoke(lease.lease_id)
        events: list[Event] = []
        with trio.fail_after(PATIENCE_SECONDS):
            while len(events) < 5:
                events += await anext(batches)
    assert events[:2] == [
        Event(a, KeyValue(a, b"1", first, first, lease.lease_id), first),
        Event(a, KeyValue(a, b"2", first, second, lease.lease_id), second),
    ]
    assert sorted(events[2:4], key=lambda event: event.key) == [
        Event(a, None, third),
        Event(b, KeyValue(b, b"3", third, third, lease.lease_id), third),
    ]
    assert (events[4].key, events[4].value) == (b, None)
    assert events[4].revision > third


async def _a_watch_tells_the_past_too(coordinator: Coordinator, prefix: str) -> None:
    revisions = [await put(coordinator, f"{prefix}a", value) for value in (b"1", b"2", b"3")]
    async with coordinator.watch(prefix, revisions[1]) as batches:
        events: list[Event] = []
        with trio.fail_after(PATIENCE_SECONDS):
            while len(events) < 2:
                events += await anext(batches)
    assert [event.revision for event in events] == revisions[1:]


async def _waiting_for_events_can_be_given_up_and_taken_up(
    coordinator: Coordinator, prefix: str
) -> None:
    start = (await coordinator.read(prefix)).revision + 1
    async with coordinator.watch(prefix, start) as batches:
        for value in (b"1", b"2", b"3"):
            with trio.move_on_after(0.05) as waited:
                await anext(batches)
            assert waited.cancelled_caught
            await put(coordinator, f"{prefix}a", value)
            with trio.fail_after(PATIENCE_SECONDS):
                events = await anext(batches)
            assert [event.value.value for event in events if event.value] == [value]


async def _an_error_in_the_block_of_a_watch_comes_out_as_it_is(
    coordinator: Coordinator, prefix: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with coordinator.watch(prefix, 1):
            raise ZeroDivisionError
    with trio.move_on_after(0.05) as scope:
        async with coordinator.watch(prefix, 1) as batches:
            async for _events in batches:
                pass
    assert scope.cancelled_caught


async def _many_calls_at_a_time_do_not_hold_up_a_keep_alive(
    coordinator: Coordinator, prefix: str
) -> None:
    lease = await coordinator.grant(60)

    async def write(number: int) -> None:
        for _ in range(5):
            await put(coordinator, f"{prefix}{number}")

    async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as watches:
        for _ in range(4):
            await watches.enter_async_context(coordinator.watch(prefix, 1))
        for number in range(20):
            nursery.start_soon(write, number)
        with trio.fail_after(PATIENCE_SECONDS):
            for _ in range(5):
                assert await coordinator.keep_alive(lease.lease_id)
    assert len((await coordinator.read(prefix)).values) == 20


async def watch_is_ended_by_compaction(
    coordinator: Coordinator, prefix: str, compact: Callable[[int], Awaitable[None]]
) -> None:
    """For those that can be compacted by hand: who comes too late has to read."""
    first = await put(coordinator, f"{prefix}a", b"1")
    last = await put(coordinator, f"{prefix}a", b"2")
    async with coordinator.watch(prefix, last) as earlier:
        await compact(last)
        async with coordinator.watch(prefix, first) as batches:
            with (
                trio.fail_after(PATIENCE_SECONDS),
                pytest.raises(CoordinatorUnavailableError) as caught,
            ):
                await anext(batches)
            assert caught.value.cause is NoAnswer.COMPACTED
            with pytest.raises(CoordinatorUnavailableError) as caught:
                await anext(batches)
            assert caught.value.cause is NoAnswer.COMPACTED
        following = await put(coordinator, f"{prefix}a", b"3")
        seen: list[int] = []
        with trio.fail_after(PATIENCE_SECONDS):
            while len(seen) < 2:
                seen += [event.revision for event in await anext(earlier)]
    assert seen == [last, following]


Check = Callable[[Coordinator, str], Awaitable[None]]

COORDINATOR_CONTRACTS: Final[dict[str, Check]] = {
    function.__name__.strip("_"): function
    for function in (
        _nothing_is_there_at_first,
        _what_was_written_is_read,
        _a_transaction_is_done_if_all_compares_hold,
        _a_transaction_does_nothing_if_one_does_not,
        _of_two_who_compare_one_wins,
        _a_deleted_key_is_gone_and_deleting_it_again_is_harmless,
        _a_key_made_anew_has_a_new_creation,
        _keys_go_with_their_lease,
        _a_key_leaves_its_lease_when_it_is_written_without,
        _a_lease_that_is_gone_is_told,
        _a_lease_lives_as_long_as_it_is_kept_alive,
        _short_leases_are_made_longer,
        _a_watch_tells_every_change_in_order,
        _a_watch_tells_the_past_too,
        _waiting_for_events_can_be_given_up_and_taken_up,
        _an_error_in_the_block_of_a_watch_comes_out_as_it_is,
        _many_calls_at_a_time_do_not_hold_up_a_keep_alive,
    )
}
