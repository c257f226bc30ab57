"""Our own Python library against RocketMQ's brokers, 4.9.7 and 5.3.3, and against both of ours."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import tandem
from tests.compat.programs import NotToBeHadError, classpath, fetch, java_command
from tests.compat.targets import Target, running_rocketmq, running_target
from tests.tandem.client.three_worlds import WORLDS, Clients, clients_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("python client")]

TARGETS: Final = ("5.3.3", "4.9.7", "classic", "fenced")
SECONDS_MAX: Final = 90.0


@contextmanager
def _up(name: str, directory: Path) -> Iterator[Target]:
    with ExitStack() as stack:
        try:
            if name == "4.9.7":
                jars, port = classpath("broker4.xml"), 30_000 + secrets.randbelow(20_000)
                target = running_rocketmq(directory, jars, server_port=port, port=port + 10)
            else:
                target = running_target("real" if name == "5.3.3" else name, directory)  # type: ignore[arg-type]
            yield stack.enter_context(target)
        except NotToBeHadError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module", params=TARGETS)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with _up(request.param, tmp_path_factory.mktemp("target")) as target:
        with tandem.BlockingAdmin(target.name_servers) as admin:
            for world in WORLDS:
                for topic in ("Plain", "Fails", "Ordered", "Shared", "All", "Moved", "Half"):
                    admin.create_topic(f"{topic}-{world}", queue_nums=4)
        yield target.name_servers


@pytest.fixture(params=WORLDS)
def clients(request: pytest.FixtureRequest) -> Iterator[Clients]:
    with clients_of(request.param) as clients:
        yield clients


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)  # noqa: TID251  waits for another process


def bodies_of(consumer: Any, topic: str, count: int, **filtered: str) -> list[bytes]:  # noqa: ANN401
    found: list[bytes] = []
    for message in consumer.subscribe(topic, **filtered):
        found.append(message.body)
        if len(found) == count:
            message.done()
            break
    return sorted(found)


def test_what_is_sent_is_handled_with_filters(clients: Clients, servers: str) -> None:
    topic = f"Plain-{clients.world}"
    with clients.producer(servers, "PG") as producer:
        for number in range(20):
            message = tandem.Message(
                topic,
                b"%02d" % number,
                keys=[str(number), "all"],
                tags="odd" if number % 2 else "even",
                properties={"number": str(number)},
            )
            assert producer.send(message).status is tandem.SendStatus.SEND_OK
        batch = producer.send_batch([tandem.Message(topic, b"in a batch", tags="batch")] * 3)
        assert batch.status is tandem.SendStatus.SEND_OK
        large = tandem.Message(topic, b"large" * 3000, tags="large")
        assert producer.send(large).status is tandem.SendStatus.SEND_OK
    with clients.consumer(servers, f"plain-{clients.world}") as consumer:
        found = bodies_of(consumer, topic, 14, tags="odd || batch || large")
        assert found == sorted(
            [b"%02d" % each for each in range(1, 20, 2)] + [b"in a batch"] * 3 + [large.body]
        )
        assert sum(consumer.lag().values()) == 0
    with clients.consumer(servers, f"sql-{clients.world}") as consumer:
        found = bodies_of(consumer, topic, 5, sql="number BETWEEN 5 AND 9")
        assert found == [b"05", b"06", b"07", b"08", b"09"]


def test_what_fails_comes_again_or_is_a_dead_letter(clients: Clients, servers: str) -> None:
    topic, group = f"Fails-{clients.world}", f"fails-{clients.world}"
    with clients.producer(servers, "PG") as producer:
        for body in (b"once more", b"never"):
            producer.send(tandem.Message(topic, body))
    with clients.consumer(servers, group) as consumer:
        again = None
        for message in consumer.subscribe(topic):
            if message.reconsume_times:
                again = (message.topic, message.body, message.reconsume_times)
                message.done()
                break
            if message.body == b"never":
                message.dead_letter()
            else:
                message.retry(1)
        assert again == (topic, b"once more", 1)
    with tandem.BlockingPullConsumer(servers, "audit") as audit:
        dead = audit.messages(f"%DLQ%{group}", until_end=True)
        assert [message.body for message in dead] == [b"never"]


def test_order_is_kept_by_locks(clients: Clients, servers: str) -> None:
    topic = f"Ordered-{clients.world}"
    with clients.producer(servers, "PG") as producer:
        for number in range(30):
            message = tandem.Message(topic, b"%d %02d" % (number % 3, number))
            producer.send(message, sharding_key=f"key {number % 3}")
    seen = []
    with clients.consumer(servers, f"ordered-{clients.world}", orderly=True) as consumer:
        for message in consumer.subscribe(topic):
            if message.body.endswith(b"5") and not message.reconsume_times:
                message.retry(0.1)
                continue
            seen.append(message.body)
            if len(seen) == 30:
                consumer.stop()
    for key in (b"0", b"1", b"2"):
        of_key = [body for body in seen if body[:1] == key]
        assert of_key == sorted(of_key)


def test_members_share_the_queues_and_one_takes_over(clients: Clients, servers: str) -> None:
    topic, group = f"Shared-{clients.world}", f"shared-{clients.world}"

    def of_topic(consumer: Any) -> int:  # noqa: ANN401
        return sum(queue.topic == topic for queue in consumer.assignment)

    with clients.consumer(servers, group) as one:
        one.subscribe(topic)
        until(lambda: of_topic(one) == 4)
        with clients.consumer(servers, group) as two:
            two.subscribe(topic)
            until(lambda: (of_topic(one), of_topic(two)) == (2, 2))
        until(lambda: of_topic(one) == 4)


def test_a_broadcasting_member_gets_everything(clients: Clients, servers: str) -> None:
    topic = f"All-{clients.world}"
    with clients.producer(servers, "PG") as producer:
        for number in range(8):
            producer.send(tandem.Message(topic, b"%d" % number))
    for _ in range(2):
        with clients.consumer(
            servers, f"all-{clients.world}", message_model="broadcasting"
        ) as consumer:
            assert bodies_of(consumer, topic, 8) == [b"%d" % each for each in range(8)]


def test_a_group_begins_and_is_moved_as_it_is_told(clients: Clients, servers: str) -> None:
    topic = f"Moved-{clients.world}"
    with clients.producer(servers, "PG") as producer:
        for number in range(4):
            producer.send(tandem.Message(topic, b"old %d" % number), queue_id=0)
        with clients.consumer(servers, f"moved-{clients.world}", start="latest") as consumer:
            subscription = consumer.subscribe(topic)
            queue = tandem.MessageQueue(topic, "broker-a", 0)
            until(lambda: queue in consumer.assignment)
            # RocketMQ's broker begins a young queue at its first message, whatever is asked.
            consumer.seek(queue, 2)
            producer.send(tandem.Message(topic, b"new"), queue_id=0)
            messages = iter(subscription)
            assert [next(messages).body for _ in range(3)] == [b"old 2", b"old 3", b"new"]


def test_a_transaction_is_seen_when_it_is_committed(clients: Clients, servers: str) -> None:
    if clients.world == "threads":
        pytest.skip("the producer for plain code has no transactions: no broker could ask it")
    topic = f"Half-{clients.world}"

    async def transact(producer: tandem.Producer) -> None:
        async with producer.transaction(tandem.Message(topic, b"committed")):
            pass
        with pytest.raises(KeyError):
            async with producer.transaction(tandem.Message(topic, b"rolled back")):
                raise KeyError("planned")

    with clients.producer(servers, f"half-{clients.world}") as producer:
        producer.run(transact)
        producer.send(tandem.Message(topic, b"plain"))
    with clients.consumer(servers, f"half-{clients.world}") as consumer:
        assert bodies_of(consumer, topic, 2) == [b"committed", b"plain"]


@pytest.fixture(params=[name for name in TARGETS if name != "4.9.7"])
def popped_from(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Servers that know POP, which RocketMQ 4 does not."""
    with _up(request.param, tmp_path_factory.mktemp("popped")) as target:
        with tandem.BlockingAdmin(target.name_servers) as admin:
            admin.create_topic("Popped", queue_nums=2)
        yield target.name_servers


def test_messages_are_received_acknowledged_and_extended_and_come_again(popped_from: str) -> None:
    with tandem.BlockingProducer(popped_from, "PG") as producer:
        for number in range(9):
            producer.send(tandem.Message("Popped", b"%d" % number, tags="ab"[number % 2]))

    def received(count: int, **arguments: Any) -> list[tandem.PoppedMessage]:  # noqa: ANN401
        found: list[tandem.PoppedMessage] = []

        def receive() -> bool:
            found.extend(consumer.receive("Popped", wait_ms=1_000, **arguments))
            return len(found) >= count

        until(receive)
        return found

    with tandem.BlockingSimpleConsumer(popped_from, "Popping") as consumer:
        found = received(9, invisible_ms=25_000)
        assert sorted(int(each.body) for each in found) == list(range(9))
        assert consumer.ack(found[0])
        assert consumer.ack(found[1:6])
        assert consumer.extend(found[6], 600_000)
        again = received(2, invisible_ms=600_000)
        assert {each.body for each in again} == {each.body for each in found[7:]}
        assert {(each.reconsume_times, each.topic) for each in again} == {(1, "Popped")}
        assert consumer.ack([found[6], *again])
        assert consumer.receive("Popped", wait_ms=0) == []
    with tandem.BlockingSimpleConsumer(popped_from, "Tagged", orderly=True) as consumer:
        found = received(5, tags="a", invisible_ms=600_000)
        assert sorted(int(each.body) for each in found) == [0, 2, 4, 6, 8]
        assert all(consumer.ack(each) for each in found)


def test_traces_of_our_clients_are_read_by_rocketmqs_tool_and_by_ours(
    servers: str, tmp_path: Path
) -> None:
    topic, traces = f"Traced{secrets.token_hex(3)}", f"Traces{secrets.token_hex(3)}"
    with tandem.BlockingAdmin(servers) as admin:
        for each in (topic, traces):
            admin.create_topic(each, queue_nums=1)
        with tandem.BlockingProducer(servers, group="PT", trace=traces) as producer:
            sent = producer.send(tandem.Message(topic, b"traced", keys="k", tags="t"))
        with tandem.BlockingConsumer(servers, group="GT", trace=traces) as consumer:
            for _ in consumer.subscribe(topic):
                consumer.stop()
        end = time.monotonic() + SECONDS_MAX
        while len(found := admin.client_traces(sent.msg_id, traces)) < 2:
            assert time.monotonic() < end, found
            time.sleep(0.2)  # noqa: TID251  waits for the last traces
    assert [(each.event.value, each.group) for each in found] == [
        ("sent", "PT"),
        ("consumed", "GT"),
    ]
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    asked = ["queryMsgTraceById", "-n", servers, "-i", sent.msg_id, "-t", traces]
    said = fetch(
        [*java_command(classpath("pom.xml", "tools"), tmp_path), main, *asked], cwd=tmp_path
    )
    rows = [line.split() for line in said.splitlines() if line[:3] in ("Pub", "Sub")]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("Pub", "PT", "success"),
        ("Sub", "GT", "success"),
    ]
