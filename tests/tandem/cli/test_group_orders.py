from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tandem.cli.group_orders import (
    Came,
    promote,
    raise_features,
    recover_group,
    rejoin,
    resign,
    scrub,
)
from tandem.coordinator.interface import (
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    Snapshot,
)
from tandem.wire.group_state import GroupState, LeaderRecord, decode_state
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import answer_to
from tests.tandem.views.fake_group import KEYS, Nodes, group_of
from tests.tandem.views.group_samples import MEMBERS


async def test_promote_asks_the_master_and_waits_for_the_next(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.on_order = lambda _: nodes.elect("b", 8)
    async with group_of(nodes) as group:
        outcome = await promote(group, "b", accept_loss=False, wait_seconds=10)
    assert (outcome.came, outcome.master, outcome.exit_status) == (Came.DONE, "b", 0)
    assert outcome.text == "handed over; b is master of g, epoch 8, after 0.0 s"
    assert nodes.orders == [("a", FencedCommand(command="promote", node="b"))]


async def test_the_master_is_promoted_already(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    async with group_of(nodes) as group:
        outcome = await promote(group, "a", accept_loss=False, wait_seconds=10)
    assert (outcome.came, nodes.orders) == (Came.DONE, [])


async def test_a_refusal_says_what_it_would_cost(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.result = FencedCommandResult(
        done=False, text="c lacks messages", lost_messages=1234, lost_bytes=5000
    )
    async with group_of(nodes) as group:
        outcome = await promote(group, "c", accept_loss=False, wait_seconds=10)
    assert (outcome.came, outcome.exit_status) == (Came.REFUSED, 1)
    assert outcome.text == (
        "refused: c lacks messages. It would lose 1,234 messages (5,000 bytes of log);"
        " --accept-loss does it all the same"
    )


async def test_an_accepted_loss_is_told_and_named(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.result = FencedCommandResult(done=True, text="handed over", lost_messages=3)
    nodes.on_order = lambda _: nodes.elect("c", 8)
    async with group_of(nodes) as group:
        outcome = await promote(group, "c", accept_loss=True, wait_seconds=10)
    assert outcome.text.startswith("handed over (lost: 3 messages (0 bytes of log)); c is master")
    assert nodes.orders[0][1].accept_loss


async def test_that_another_node_became_master_is_no_success(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.on_order = lambda _: nodes.elect("c", 8)
    async with group_of(nodes) as group:
        outcome = await promote(group, "b", accept_loss=False, wait_seconds=10)
    assert (outcome.came, outcome.master) == (Came.OTHER_MASTER, "c")
    assert outcome.exit_status == 1


async def test_waiting_for_the_next_master_is_bounded(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.on_order = lambda _: nodes.nobody_is_master()
    async with group_of(nodes) as group:
        outcome = await resign(group, accept_loss=False, wait_seconds=10)
    assert (outcome.came, outcome.exit_status) == (Came.NO_NEW_MASTER, 1)
    assert "no new master after 10 s: a: not in the in-sync set" in outcome.text
    assert 10 <= trio.current_time() < 11


async def test_the_master_of_before_is_not_the_next(autojump_clock: MockClock) -> None:
    async with group_of(Nodes()) as group:
        outcome = await resign(group, accept_loss=False, wait_seconds=10)
    assert outcome.came is Came.NO_NEW_MASTER


async def test_resign_waits_for_whoever_wins(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.on_order = lambda _: nodes.elect("a", 8)
    async with group_of(nodes) as group:
        outcome = await resign(group, accept_loss=False, wait_seconds=10)
    assert (outcome.came, outcome.master) == (Came.DONE, "a")


async def test_without_a_master_nobody_can_hand_over(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.nobody_is_master()
    async with group_of(nodes) as group:
        outcome = await promote(group, "b", accept_loss=False, wait_seconds=10)
    assert (outcome.came, outcome.exit_status) == (Came.NO_MASTER, 1)


async def test_that_nobody_answers_is_not_a_refusal(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.brokers.clear()
    async with group_of(nodes) as group:
        outcome = await resign(group, accept_loss=False, wait_seconds=10)
    assert (outcome.came, outcome.exit_status) == (Came.NOT_ASKED, 2)


async def test_rejoin_goes_to_the_node_itself(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.result = FencedCommandResult(done=True, text="c copies the log of a", lost_bytes=9)
    async with group_of(nodes) as group:
        outcome = await rejoin(group, "c", accept_loss=True)
        assert nodes.orders == [("c", FencedCommand(command="rejoin", node="c", accept_loss=True))]
        assert (outcome.came, outcome.text) == (
            Came.DONE,
            "c copies the log of a (lost: 0 messages (9 bytes of log))",
        )
        nodes.result = FencedCommandResult(done=False, text="c is not set aside")
        assert (await rejoin(group, "c", accept_loss=False)).came is Came.REFUSED
        broker = nodes.brokers[MEMBERS[2].address]
        broker.handlers[RequestCode.FENCED_COMMAND] = lambda _: None
        outcome = await rejoin(group, "c", accept_loss=False)
    assert (outcome.came, outcome.exit_status) == (Came.IN_DOUBT, 2)


async def test_features_are_raised_by_the_master(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    async with group_of(nodes) as group:
        refused = await raise_features(group, 2)
        assert (refused.came, nodes.orders) == (Came.REFUSED, [])
        nodes.statuses["a"] = msgspec.structs.replace(
            nodes.statuses["a"], program="2.0", level_max=2
        )
        assert (await raise_features(group, 2)).came is Came.DONE
        assert nodes.orders == [("a", FencedCommand(command="raise-features", level=2))]
        nodes.nobody_is_master()
        assert (await raise_features(group, 0)).came is Came.NO_MASTER


async def test_scrub_goes_to_the_node_itself(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.result = FencedCommandResult(done=True, text="c looks at its log")
    async with group_of(nodes) as group:
        outcome = await scrub(group, "c")
        assert nodes.orders == [("c", FencedCommand(command="scrub", node="c"))]
        assert (outcome.came, outcome.text) == (Came.DONE, "c looks at its log")
        nodes.result = FencedCommandResult(done=False, text="not now")
        assert (await scrub(group, "c")).came is Came.REFUSED
        nodes.brokers[MEMBERS[2].address].handlers[RequestCode.FENCED_COMMAND] = lambda _: None
        assert (await scrub(group, "c")).came is Came.IN_DOUBT


async def test_a_node_that_does_not_believe_us_refuses(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    broker = nodes.brokers[MEMBERS[2].address]
    async with group_of(nodes) as group:
        for code, came in ((ResponseCode.NO_PERMISSION, Came.REFUSED), (1, Came.NOT_ASKED)):
            broker.handlers[RequestCode.FENCED_COMMAND] = partial(answer_to, code=code)
            assert (await rejoin(group, "c", accept_loss=False)).came is came


def lost_group() -> Nodes:
    """No member of the in-sync set is left as it was; three nodes are registered."""
    nodes = Nodes()
    nodes.nobody_is_master()
    for name, end in (("a", 100), ("b", 300), ("c", 200)):
        nodes.register(name, 7, end)
    return nodes


async def test_recover_group_writes_the_longest_log_and_waits(autojump_clock: MockClock) -> None:
    nodes = lost_group()

    async def take_over() -> None:
        await trio.sleep(1)
        nodes.elect("b", 9)

    async with group_of(nodes) as group, trio.open_nursery() as nursery:
        refused = await recover_group(group, min_isr=2, accept_loss=False, wait_seconds=5)
        assert refused.came is Came.REFUSED
        assert "--accept-loss" in refused.text
        nursery.start_soon(take_over)
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
    assert (outcome.came, outcome.master) == (Came.DONE, "b")
    assert "b has the best log" in outcome.text


async def test_records_of_before_a_restore_decide_nothing(autojump_clock: MockClock) -> None:
    """A coordinator from a backup knows nodes as they were: what they say themselves counts."""
    nodes = lost_group()
    nodes.statuses["c"] = msgspec.structs.replace(nodes.statuses["c"], log_end=5000)
    async with group_of(nodes) as group:
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
        assert (outcome.came, outcome.exit_status) == (Came.OLD_RECORD, 1)
        assert "200 bytes for c, which says that it has 5000" in outcome.text
        nodes.brokers[MEMBERS[2].address].handlers[RequestCode.FENCED_STATUS] = lambda _: None
        outcome = await recover_group(group, min_isr=2, accept_loss=False, wait_seconds=5)
        assert (outcome.came, outcome.exit_status) == (Came.SILENT_NODE, 1)


@pytest.mark.parametrize("newer", [{"incarnation": "newer"}, {"promised": 9}])
async def test_a_log_of_the_same_length_may_be_another_one(
    autojump_clock: MockClock, newer: dict[str, Any]
) -> None:
    nodes = lost_group()
    nodes.statuses["c"] = msgspec.structs.replace(nodes.statuses["c"], **newer)
    before = nodes.records.values[KEYS.state]
    async with group_of(nodes) as group:
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
    assert outcome.came is Came.OLD_RECORD
    assert nodes.records.values[KEYS.state] == before


async def test_a_node_that_says_nothing_stops_no_recovery_with_accepted_loss(
    autojump_clock: MockClock,
) -> None:
    nodes = lost_group()
    nodes.brokers[MEMBERS[2].address].handlers[RequestCode.FENCED_STATUS] = lambda _: None
    async with group_of(nodes) as group:
        await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
    state = decode_state(nodes.records.values[KEYS.state][0])
    assert (state.isr, state.recoveries) == ({"b": "new"}, 1)


@pytest.mark.parametrize("key", [KEYS.leader, KEYS.state])
async def test_a_master_or_an_operator_that_comes_meanwhile_stops_a_recovery(
    autojump_clock: MockClock, key: str
) -> None:
    nodes = lost_group()
    read = nodes.records.read
    between: dict[str, GroupState | LeaderRecord] = {
        KEYS.leader: LeaderRecord(node="a", session="s", epoch=7),
        KEYS.state: GroupState(epoch=8, master="", isr={"a": "new"}, min_isr=2),
    }

    async def read_and_write(prefix: str) -> Snapshot:
        snapshot = await read(prefix)
        nodes.records.write(key, between[key])
        return snapshot

    nodes.records.read = read_and_write  # type: ignore[method-assign]  # something in between
    async with group_of(nodes) as group:
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
    assert (outcome.came, outcome.exit_status) == (Came.OVERTAKEN, 1)
    assert decode_state(nodes.records.values[KEYS.state][0]).recoveries == 0


async def test_a_master_of_an_epoch_before_the_recovery_is_not_its_outcome(
    autojump_clock: MockClock,
) -> None:
    nodes = lost_group()

    async def take_over() -> None:
        await trio.sleep(1)
        nodes.elect("b", 7)

    async with group_of(nodes) as group, trio.open_nursery() as nursery:
        nursery.start_soon(take_over)
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
    assert outcome.came is Came.NO_NEW_MASTER


async def test_what_changed_meanwhile_stops_a_recovery(autojump_clock: MockClock) -> None:
    nodes = lost_group()
    before = nodes.records.values[KEYS.state]
    read = nodes.records.read

    async def read_and_change(prefix: str) -> Snapshot:
        snapshot = await read(prefix)
        nodes.register("c", 7, 200)
        return snapshot

    nodes.records.read = read_and_change  # type: ignore[method-assign]  # something in between
    async with group_of(nodes) as group:
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
    assert (outcome.came, outcome.exit_status) == (Came.OVERTAKEN, 1)
    assert nodes.records.values[KEYS.state] == before


async def test_a_node_that_comes_meanwhile_stops_a_recovery(autojump_clock: MockClock) -> None:
    nodes = lost_group()
    nodes.records.values.pop(KEYS.node("c"))
    read = nodes.records.read

    async def read_and_register(prefix: str) -> Snapshot:
        snapshot = await read(prefix)
        nodes.register("c", 7, 900)
        return snapshot

    nodes.records.read = read_and_register  # type: ignore[method-assign]  # it has the best log
    async with group_of(nodes) as group:
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
    assert (outcome.came, outcome.exit_status) == (Came.OVERTAKEN, 1)


async def test_a_recovery_that_nobody_follows_says_so(autojump_clock: MockClock) -> None:
    nodes = lost_group()
    async with group_of(nodes) as group:
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
    assert outcome.came is Came.NO_NEW_MASTER
    state = decode_state(nodes.records.values[KEYS.state][0])
    assert (state.isr, state.master) == ({"b": "new"}, "")


async def test_a_coordinator_in_trouble_is_told_and_what_it_means(
    autojump_clock: MockClock,
) -> None:
    nodes = lost_group()
    async with group_of(nodes) as group:
        nodes.records.trouble_of_transactions = CoordinatorUnavailableError("no answer")
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
        assert (outcome.came, outcome.exit_status) == (Came.IN_DOUBT, 2)
        nodes.records.trouble_of_transactions = CoordinatorRefusedError("wrong user")
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
        assert (outcome.came, outcome.exit_status) == (Came.NOT_ASKED, 2)
        nodes.records.trouble = CoordinatorUnavailableError("no answer")
        outcome = await recover_group(group, min_isr=2, accept_loss=True, wait_seconds=5)
        assert outcome.came is Came.NOT_ASKED
        assert "no answer" in outcome.text
