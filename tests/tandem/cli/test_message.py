import json

import pytest
import trio

import tandem as library
from tandem.cli.message import Resending, Resent, _resend
from tandem.cli.output import CommandError
from tandem.client.errors import GroupNotFoundError, MessageNotFoundError
from tandem.testing import RunningCluster
from tests.support.patience import PATIENCE_SECONDS
from tests.tandem.cli.conftest import Tandem

pytestmark = [pytest.mark.fault, pytest.mark.xdist_group("one cluster of the command line")]

TOPIC = "posted"
GROUP = "readers"


@pytest.fixture(scope="module")
def letters(cluster: RunningCluster) -> list[str]:
    """Two good messages, and two that end as dead letters of a group; the ids of the latter."""

    async def post() -> list[str]:
        ids = []
        async with library.Admin(cluster.name_servers) as admin:
            await admin.create_topic(TOPIC, queue_nums=1)
        async with library.Producer(cluster.name_servers, group="writers") as producer:
            for number, body in enumerate((b"good", b"bad 1", b"fine", b"bad 2")):
                message = library.Message(TOPIC, body, keys=f"k{number}", tags="t")
                result = await producer.send(message)
                ids.append(result.msg_id)
        with trio.fail_after(PATIENCE_SECONDS):
            async with library.Consumer(cluster.name_servers, group=GROUP) as consumer:
                count = 0
                async for received in consumer.subscribe(TOPIC):
                    if received.body.startswith(b"bad"):
                        await received.dead_letter()
                    else:
                        received.done()
                    count += 1
                    if count == 4:
                        break
        return [ids[1], ids[3]]

    return trio.run(post)


def shown(tandem: Tandem, *arguments: str) -> list[dict[str, object]]:
    done = tandem("message", "show", *arguments, "--format", "jsonl")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_messages_are_found_by_id_key_and_time(tandem: Tandem, letters: list[str]) -> None:
    (by_key,) = shown(tandem, "--topic", TOPIC, "--key", "k1")
    assert (by_key["body"], by_key["msg_id"]) == ("bad 1", letters[0])
    (by_id,) = shown(tandem, letters[0], "--topic", TOPIC)
    (by_place,) = shown(tandem, str(by_key["offset_msg_id"]))
    assert by_id == by_place == by_key
    by_time = shown(tandem, "--topic", TOPIC, "--from", "-1h", "--max", "3")
    assert [each["body"] for each in by_time] == ["good", "bad 1", "fine"]
    since = str(by_key["store_timestamp_ms"])
    assert shown(tandem, "--topic", TOPIC, "--from", since)[0]["msg_id"] == letters[0]
    table = tandem("message", "show", letters[0], "-t", TOPIC).stdout
    assert table.splitlines()[0].split() == ["id", letters[0]]


def test_what_is_not_there_is_said(tandem: Tandem, letters: list[str]) -> None:
    with pytest.raises(MessageNotFoundError) as unknown:
        tandem("message", "show", letters[0])
    assert unknown.value.needs_topic
    with pytest.raises(MessageNotFoundError):
        tandem("message", "trace", "0" * 32, "-t", TOPIC)
    with pytest.raises(GroupNotFoundError):
        tandem("message", "resend", "nobody")
    for line in (["show", "-t", TOPIC, "-k", "x"], ["resend", GROUP, "--id", "x"]):
        with pytest.raises(CommandError) as caught:
            tandem("message", *line)
        assert caught.value.exit_status == 1


@pytest.mark.parametrize(
    "line", [[], ["-t", "T"], ["-k", "k"], ["ID", "-k", "k"], ["-t", "T", "--from", "x"]]
)
def test_what_to_look_for_has_to_be_said(tandem: Tandem, line: list[str]) -> None:
    assert tandem("message", "show", *line).exit_code == 2


def test_the_way_of_a_message_ends_at_the_dead_letters(tandem: Tandem, letters: list[str]) -> None:
    found = tandem("message", "trace", letters[0], "-t", TOPIC, "--format", "json")
    (fate,) = json.loads(found.stdout)["groups"]
    assert (fate["group"], fate["state"]) == (GROUP, "dead letter")
    assert [place["topic"] for place in fate["places"]] == [f"%DLQ%{GROUP}"]
    table = tandem("message", "trace", letters[0], "-t", TOPIC).stdout
    assert "dead letter" in table
    assert f"%DLQ%{GROUP}" in table


def test_dead_letters_are_sent_again_once_each(tandem: Tandem, letters: list[str]) -> None:
    dry = tandem("message", "resend", GROUP, "--format", "jsonl")
    planned = [json.loads(line) for line in dry.stdout.splitlines()]
    assert {each["origin_id"] for each in planned} == set(letters)
    assert {(each["topic"], each["result"]) for each in planned} == {(TOPIC, "would be sent")}
    assert "dry run" in dry.stderr
    before = len(shown(tandem, "--topic", TOPIC, "--from", "-1h"))

    ids = [part for each in (letters[0], planned[0]["letter_id"]) for part in ("--id", each)]
    sent = tandem("message", "resend", GROUP, *ids, "--execute", "--format", "json")
    results = json.loads(sent.stdout)
    assert {each["result"] for each in results} == {"sent"}
    messages = shown(tandem, "--topic", TOPIC, "--from", "-1h")
    assert len(messages) == before + len(results)
    again = next(each for each in messages if each["msg_id"] == results[0]["message_id"])
    properties = again["properties"]
    assert isinstance(properties, dict)
    assert properties["DLQ_ORIGIN_MESSAGE_ID"] == results[0]["origin_id"]
    assert (again["tags"], str(again["body"])[:3]) == ("t", "bad")
    one = tandem("message", "resend", GROUP, "--max", "1", "--format", "text").stdout
    assert len(one.splitlines()) == 1


def test_a_letter_is_sent_once_also_by_two_runs_unless_that_is_wanted(
    tandem: Tandem, letters: list[str]
) -> None:
    def resent(*options: str) -> dict[str, str]:
        line = ("message", "resend", GROUP, "--id", letters[1], "--format", "jsonl", *options)
        (row,) = tandem(*line).stdout.splitlines()
        return dict(json.loads(row))

    first = resent("--execute")
    assert first["result"] in ("sent", "sent before")  # another test may have done it
    for options in ([], ["--execute"]):
        again = resent(*options)
        assert (again["result"], again["message_id"]) == ("sent before", first["message_id"])
    assert resent("--again")["result"] == "would be sent"
    forced = resent("--again", "--execute")
    assert forced["result"] == "sent"
    assert forced["message_id"] != first["message_id"]


def test_a_letter_that_is_there_twice_is_sent_once(
    cluster: RunningCluster, letters: list[str]
) -> None:
    with library.BlockingAdmin(cluster.name_servers) as admin:
        (letter,) = [
            each for each in admin.messages_of(f"%DLQ%{GROUP}") if each.msg_id == letters[1]
        ]
    results: list[Resent] = []
    trio.run(_resend, [letter, letter], cluster.access, Resending(again=True), results)
    first, second = results
    assert (first.result, second.result) == ("sent", "there twice: sent once")
    assert first.message_id == second.message_id
