"""`tandem why` against a fenced group: each turn of a life, and a message that is cut off."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from typer.testing import CliRunner

import tandem
from tandem.cli.command_line import app
from tandem.life.result import Kind, State
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.support.patience import PATIENCE_SECONDS, PATIENT_LEASE, wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.xdist_group("the life of a message"),
]

TOPIC = "Orders"
TIMERS = PATIENT_LEASE | {"store": {"timer_wheel_enable": True}}


class Lives:
    """A cluster, and the ids of messages by what became of them."""

    def __init__(self, cluster: RunningCluster, ids: dict[str, str]) -> None:
        self.cluster = cluster
        self.ids = ids

    def why(self, message: str, *where: str) -> dict[str, Any]:
        servers = [part for server in self.cluster.name_servers for part in ("-n", server)]
        line = ["why", message, *(where or servers), "--format", "json"]
        result = CliRunner().invoke(app, line, catch_exceptions=False, prog_name="tandem")
        found: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (0 if found["is_found"] else 1)
        return found

    def life(self, message: str, *where: str) -> dict[str, Any]:
        (life,) = self.why(message, *where)["lives"]
        return dict(life)

    def in_stores(self, message: str) -> dict[str, Any]:
        nodes = self.cluster.nodes
        stores = [part for n in nodes for part in ("--store", str(self.cluster.store_directory(n)))]
        return self.why(message, *stores)


def kinds(life: dict[str, Any]) -> set[str]:
    return {each["kind"] for each in life["findings"]}


def states(life: dict[str, Any]) -> dict[str, str]:
    return {each["group"]: each["state"] for each in life["groups"]}


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    with running_fenced_cluster(tmp_path_factory.mktemp("lives"), settings=TIMERS) as cluster:
        ids = trio.run(_send, cluster)
        trio.run(_consume, cluster)
        yield Lives(cluster, ids)


async def _send(cluster: RunningCluster) -> dict[str, str]:
    """Send one message for each turn."""
    message = tandem.Message
    ids = {}
    async with tandem.Producer(cluster.name_servers, group="PG") as producer:
        for name, sent in {
            "plain": message(TOPIC, b"plain", keys="k17", tags="paid"),
            "retried": message(TOPIC, b"retried"),
            "dead": message(TOPIC, b"dead"),
            "late": message(TOPIC, b"late", delay_time_level=18),
            "timer": message(TOPIC, b"timer", delay_ms=3_600_000),
            "soon": message(TOPIC, b"soon", delay_time_level=1),
        }.items():
            result = await producer.send(sent)
            ids[name] = result.msg_id
            ids[f"place of {name}"] = result.offset_msg_id
        async with producer.transaction(message(TOPIC, b"committed")) as committed:
            pass
        async with producer.transaction(message(TOPIC, b"rolled back")) as rolled_back:
            rolled_back.rollback()
        async with producer.transaction(message(TOPIC, b"open")) as open_one:
            open_one.unknown()
    ids["committed"] = committed.result.msg_id
    ids["rolled back"] = rolled_back.result.msg_id
    ids["open"] = open_one.result.msg_id
    return ids


async def _consume(cluster: RunningCluster) -> None:
    left = {b"plain", b"retried", b"dead", b"soon", b"committed"}
    with trio.fail_after(PATIENCE_SECONDS):
        async with tandem.Consumer(cluster.name_servers, group="billing") as consumer:
            async for message in consumer.subscribe(TOPIC):
                left.discard(message.body)
                if message.body == b"dead":
                    await message.dead_letter()
                elif message.body == b"retried":
                    await message.retry()
                else:
                    message.done()
                if not left:
                    break


@pytest.mark.parametrize(
    ("name", "expected", "state"),
    [
        ("plain", {Kind.BORN, Kind.STORED, Kind.CONTRACT, Kind.CONFIRMED}, State.CONSUMED),
        ("place of plain", {Kind.STORED, Kind.REPLICATED}, State.CONSUMED),
        ("retried", {Kind.STORED, Kind.RETRY_WAITS}, State.AGAIN),
        ("dead", {Kind.STORED, Kind.DEAD}, State.DEAD),
        ("late", {Kind.DELAYED}, None),
        ("timer", {Kind.DELAYED}, None),
        ("soon", {Kind.DELAYED, Kind.DELIVERED, Kind.STORED}, State.CONSUMED),
        ("committed", {Kind.HALF, Kind.COMMITTED, Kind.STORED}, State.CONSUMED),
        ("rolled back", {Kind.HALF, Kind.ROLLED_BACK}, None),
        ("open", {Kind.HALF, Kind.TRANSACTION_OPEN}, None),
    ],
)
def test_the_nodes_and_their_directories_know_the_same_life(
    lives: Lives, name: str, expected: set[Kind], state: State | None
) -> None:
    if state is State.AGAIN:
        life = lives.life(lives.ids[name])  # before it comes back it waits
        assert states(life)["billing"] == State.AGAIN
        assert kinds(life) & {Kind.RETRY_WAITS, Kind.RETRIED}
        return
    found: list[dict[str, Any]] = []
    wait_until(lambda: _is_settled(lives, name, expected, found))
    life = found[-1]
    assert states(life).get("billing") == state
    stored = lives.in_stores(lives.ids[name])["lives"][0]
    assert kinds(stored) >= expected - {Kind.CONFIRMED}
    assert (stored["id"], stored["topic"]) == (life["id"], TOPIC)


def _is_settled(lives: Lives, name: str, expected: set[Kind], found: list[dict[str, Any]]) -> bool:
    """Whether the offsets of the group have been noted; the life is the last of `found`."""
    life = lives.life(lives.ids[name])
    found.append(life)
    return State.NOT_YET not in states(life).values() and kinds(life) >= expected


def test_every_node_of_the_group_shows_the_message(lives: Lives) -> None:
    found: list[dict[str, Any]] = []

    def all_have_it() -> bool:
        """A node that is slow to answer is not among them."""
        found.append(lives.life("k17"))
        texts = [e["text"] for e in found[-1]["findings"] if e["kind"] == Kind.REPLICATED]
        return len(texts) == 1 and all(node in texts[0] for node in lives.cluster.nodes)

    wait_until(all_have_it)
    life = found[-1]
    assert "epoch" in next(each["text"] for each in life["findings"] if each["kind"] == "stored")


def test_what_was_never_sent_is_nowhere(lives: Lives) -> None:
    for found in (lives.why("never"), lives.in_stores("never")):
        assert found["absence"][0]["kind"] == Kind.NO_RECORD
        assert found["looked"]


async def _send_alone(cluster: RunningCluster) -> tandem.SendResult:
    async with tandem.Producer(cluster.name_servers, group="PG") as producer:
        message = tandem.Message(TOPIC, b"alone", keys="k99")
        return await producer.send(message, wait_store_msg_ok=False)


def test_a_message_that_a_killed_master_had_alone_is_found_where_it_was_cut_off(
    tmp_path: Path,
) -> None:
    with running_fenced_cluster(tmp_path, proxied=True, settings=PATIENT_LEASE) as cluster:
        lives = Lives(cluster, {})
        master = cluster.wait_for_master()
        cluster.partition(master)
        sent = trio.run(_send_alone, cluster)
        cluster.kill(master)
        cluster.wait_for_master(other_than=master)
        cluster.heal()
        found = lives.why(sent.msg_id)
        assert not found["is_found"]
        assert Kind.SWITCHED in {each["kind"] for each in found["absence"]}
        assert any(gap["what"] == f"node {master}" for gap in found["unknown"])
        cluster.start(master)
        cluster.wait_in_sync()
        replaced = lives.why(sent.offset_msg_id)["absence"]
        # Another message is at its place now, or the middle of one.
        assert {Kind.REPLACED, Kind.NO_RECORD} & {each["kind"] for each in replaced}
        (life,) = lives.in_stores(sent.msg_id)["lives"]
        (cut,) = [each for each in life["findings"] if each["kind"] == Kind.CUT]
        assert cut["node"] == str(cluster.store_directory(master))
        assert life["summary"] == [cut["text"]]
