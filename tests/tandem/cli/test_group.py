import json
import re

import msgspec
import pytest

import tandem as library
from tandem.cli.formats import Format
from tandem.cli.group import Reset, _effect, _of_queues, _print, _reset_words
from tandem.cli.output import CommandError
from tandem.client.admin_results import (
    GroupDescription,
    GroupMember,
    GroupQueue,
    OffsetChange,
    ResetPlan,
)
from tandem.client.errors import GroupNotFoundError, RouteCause, RouteNotFoundError
from tandem.testing import RunningCluster
from tests.tandem.cli.conftest import Tandem

# Those that need a cluster share it.
pytestmark = pytest.mark.xdist_group("one cluster of the command line")

FOUND = GroupDescription(
    group="g",
    members=[
        GroupMember(
            client_id="c-1", address="10.0.0.7:1", language="JAVA", version="5.3.3", queues_count=1
        )
    ],
    queues=[
        GroupQueue(
            topic="T",
            broker_name="broker-a",
            queue_id=0,
            consumer_offset=4,
            pull_offset=6,
            broker_offset=9,
            client_id="c-1",
        )
    ],
    message_model="CLUSTERING",
    subscriptions={"T": "a || b"},
)


def change(old: int | None, new: int) -> OffsetChange:
    return OffsetChange(
        topic="T",
        broker_name="b",
        queue_id=0,
        old_offset=old,
        new_offset=new,
        min_offset=2,
        max_offset=9,
    )


def test_people_see_members_queues_and_lag(capsys: pytest.CaptureFixture[str]) -> None:
    _print(FOUND, Format.TABLE)
    out = capsys.readouterr().out
    assert "members        1\n" in out
    assert "model          clustering\n" in out
    assert "subscriptions  T a || b\n" in out
    queue = next(line for line in out.splitlines() if line.startswith("T "))
    assert queue.split() == ["T", "broker-a", "0", "4", "9", "5", "2", "-", "c-1"]


def test_programs_see_lag_and_what_is_in_flight(capsys: pytest.CaptureFixture[str]) -> None:
    _print(FOUND, Format.JSON)
    found = json.loads(capsys.readouterr().out)
    assert (found["lag"], found["queues"][0]["lag"], found["queues"][0]["inflight"]) == (5, 5, 2)
    _print(FOUND, Format.JSONL)
    assert json.loads(capsys.readouterr().out)["client_id"] == "c-1"


def test_a_group_past_the_end_is_not_shown_as_one_without_lag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    past = msgspec.structs.replace(FOUND.queues[0], queue_id=1, consumer_offset=1016)
    found = msgspec.structs.replace(FOUND, queues=[*FOUND.queues, past])
    _print(found, Format.TABLE)
    assert "past the end by 1,007" in capsys.readouterr().out
    _print(found, Format.JSON)
    shown = json.loads(capsys.readouterr().out)
    assert [queue["lag"] for queue in shown["queues"]] == [5, -1007]
    assert shown["lag"] == 5
    _print(msgspec.structs.replace(found, queues=[past]), Format.TABLE)
    assert re.search("^lag +past the end by 1,007$", capsys.readouterr().out, re.MULTILINE)


def test_a_reset_of_one_queue_leaves_the_others() -> None:
    changes = [
        msgspec.structs.replace(change(4, 5), queue_id=number, broker_name=broker)
        for broker in ("a", "b")
        for number in range(2)
    ]
    plan = ResetPlan("g", 0, changes)
    assert _of_queues(plan, [], None) == plan
    assert _of_queues(plan, [1], "b").changes == [changes[3]]
    assert _of_queues(plan, [1], None).changes == [changes[1], changes[3]]
    for queue_ids, broker in (([2], None), ([0], "c"), ([], "c")):
        with pytest.raises(CommandError) as caught:
            _of_queues(plan, queue_ids, broker)
        assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("old", "new", "effect"),
    [(4, 4, None), (4, 9, "skips 5"), (9, 4, "repeats 5"), (None, 2, None), (None, 9, "skips 7")],
)
def test_what_a_reset_does_to_messages_is_said(old: int | None, new: int, effect: str) -> None:
    assert _effect(change(old, new)) == effect


@pytest.mark.parametrize(
    ("executed", "members", "way", "words"),
    [
        (
            False,
            0,
            "",
            "dry run: nothing was changed; add --execute to do it. 0 members",
        ),
        (False, 1, "", "1 member is online, and will go on there"),
        (True, 2, "broker", "set by the brokers, which tell members that are online. 2 members"),
        (True, 0, "commit", "committed, because these brokers set none. 0 members are online"),
        (True, 2, "commit", "may commit over it: stop them, and do it again"),
    ],
)
def test_how_a_reset_was_applied_is_said(
    *, executed: bool, members: int, way: str, words: str
) -> None:
    assert words in _reset_words(Reset("g", executed, members, way, []))


@pytest.mark.fault
def test_a_group_is_listed_described_reset_and_deleted(
    tandem: Tandem, cluster: RunningCluster
) -> None:
    tandem("topic", "create", "counted", "--queues", "2")
    tandem("produce", "counted", input="".join(f"{each}\n" for each in range(10)))
    with library.BlockingPullConsumer(cluster.name_servers, group="counting") as consumer:
        for queue in consumer.fetch_message_queues("counted"):
            consumer.update_consume_offset(queue, 5)
    cluster.wait_in_sync()
    (listed,) = [
        json.loads(line)
        for line in tandem("group", "list", "--format", "jsonl").stdout.splitlines()
        if '"counting"' in line
    ]
    assert (listed["lag"], listed["members_count"], listed["topics"]) == (0, 0, ["counted"])

    reset = ["group", "reset", "counting", "--topic", "counted", "--to"]
    dry = tandem(*reset, "earliest")
    assert "repeats 5" in dry.stdout
    assert "dry run" in dry.stderr
    assert described_lag(tandem) == 0
    done = json.loads(tandem(*reset, "earliest", "--execute", "--format", "json").stdout)
    assert (done["executed"], done["applied_by"]) == (True, "broker")
    assert [each["new_offset"] for each in done["changes"]] == [0, 0]
    assert described_lag(tandem) == 10
    tandem(*reset, "3", "--yes")
    assert described_lag(tandem) == 4
    tandem(*reset, "4", "--queue", "1", "--yes")
    assert described_lag(tandem) == 3
    tandem(*reset, "-1d", "--yes")
    assert described_lag(tandem) == 10
    tandem(*reset, "latest", "--yes")
    assert described_lag(tandem) == 0

    assert tandem("group", "delete", "counting", "--yes").stdout == "group counting deleted\n"
    with pytest.raises(GroupNotFoundError):
        tandem("group", "describe", "counting")


def described_lag(tandem: Tandem) -> int:
    lag: int = json.loads(tandem("group", "describe", "counting", "--format", "json").stdout)["lag"]
    return lag


@pytest.mark.fault
def test_what_is_not_there_is_said(tandem: Tandem) -> None:
    for verb in (["describe"], ["delete", "--yes"], ["reset", "-t", "T", "--to", "latest"]):
        with pytest.raises(GroupNotFoundError) as missing:
            tandem("group", verb[0], "nobody", *verb[1:])
        assert missing.value.group == "nobody"
    tandem("topic", "create", "here", "--queues", "1")
    tandem("produce", "here", input="one\n")
    tandem("consume", "here", "--group", "somebody")
    with pytest.raises(RouteNotFoundError) as unknown:
        tandem("group", "reset", "somebody", "-t", "nowhere", "--to", "latest")
    assert unknown.value.cause is RouteCause.NO_TOPIC
    assert (unknown.value.topic, unknown.value.may_pass) == ("nowhere", False)
    with pytest.raises(CommandError) as caught:
        tandem("group", "delete", "somebody")
    assert caught.value.exit_status == 2


@pytest.mark.fault
@pytest.mark.parametrize("to", ["yesterday", "", "-1", "9" * 30])
def test_where_nobody_can_go_is_the_users_mistake(tandem: Tandem, to: str) -> None:
    done = tandem("group", "reset", "g", "--topic", "T", f"--to={to}")
    assert done.exit_code == 2
    assert "is neither earliest, latest, an offset nor a time" in done.stderr
