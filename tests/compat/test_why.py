"""`tandem why` of RocketMQ's own broker and the store that it wrote, and of both of our groups."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import trio

import tandem
from tandem.life.result import Kind, Life, State
from tandem.log import why_in_stores
from tests.compat.programs import NotToBeHadError
from tests.compat.targets import running_target

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("why")]

TOPIC: Final = "Lives"
SECONDS_MAX: Final = 90.0


def kinds(life: Life) -> set[Kind]:
    return {each.kind for each in life.findings}


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)  # noqa: TID251  waits for another process


async def send(servers: str) -> dict[str, str]:
    """Send a message for each turn of a life, and consume; return the ids by name."""
    ids = {}
    async with tandem.Producer(servers, "PG") as producer:
        for name in ("plain", "dead", "retried"):
            sent = await producer.send(tandem.Message(TOPIC, name.encode(), tags="paid"))
            ids[name] = sent.msg_id
        late = tandem.Message(TOPIC, b"late", delay_time_level=18)
        ids["late"] = (await producer.send(late)).msg_id
        async with producer.transaction(tandem.Message(TOPIC, b"committed")) as committed:
            pass
        async with producer.transaction(tandem.Message(TOPIC, b"rolled back")) as rolled_back:
            rolled_back.rollback()
        ids["committed"] = committed.result.msg_id
        ids["rolled back"] = rolled_back.result.msg_id
    left = {b"plain", b"dead", b"retried", b"committed"}
    with trio.fail_after(SECONDS_MAX):
        async with tandem.Consumer(servers, "billing") as consumer:
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
    return ids


@pytest.mark.parametrize("name", ["real", "classic", "fenced"])
def test_brokers_and_their_stores_tell_the_same_lives(name: str, tmp_path: Path) -> None:
    try:
        with running_target(name, tmp_path) as target:  # type: ignore[arg-type]
            servers = target.name_servers
            with tandem.BlockingAdmin(servers) as admin:
                admin.create_topic(TOPIC, queue_nums=2)
                ids = trio.run(send, servers)

                def life(of: str) -> Life:
                    (found,) = admin.why(ids[of], TOPIC).lives
                    return found

                def state(of: str) -> State | None:
                    groups = {each.group: each.state for each in life(of).groups}
                    return groups.get("billing")

                until(lambda: state("plain") is State.CONSUMED)
                until(lambda: state("dead") is State.DEAD)
                until(lambda: state("retried") is State.AGAIN)
                assert kinds(life("plain")) >= {Kind.STORED, Kind.CONTRACT, Kind.REPLICATED}
                assert Kind.DELAYED in kinds(life("late"))
                assert kinds(life("committed")) >= {Kind.HALF, Kind.COMMITTED, Kind.STORED}
                until(lambda: Kind.ROLLED_BACK in kinds(life("rolled back")))
                nothing = admin.why("7F0000014E5091C3F1A28BC181E80000", TOPIC)
                assert not nothing.is_found
                assert nothing.absence
    except NotToBeHadError as error:
        pytest.skip(str(error))
    roots = [path.parent for path in tmp_path.rglob("commitlog") if path.is_dir()]
    assert roots
    for of, kind in (
        ("plain", Kind.STORED),
        ("dead", Kind.DEAD),
        ("late", Kind.DELAYED),
        ("committed", Kind.COMMITTED),
        ("rolled back", Kind.ROLLED_BACK),
    ):
        now_ms = time.time_ns() // 1_000_000
        (stored,) = why_in_stores(roots, ids[of], now_ms=now_ms).lives
        assert kind in kinds(stored), of
