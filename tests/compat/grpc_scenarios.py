"""Scenarios of gRPC clients that need nothing but a place where they are served."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import tandem
from tests.compat.agents import Answer, eventually, refusal, unique
from tests.compat.grpc_scene import WARM, Scene, same

BODY_BYTES_MAX: Final = 4_194_304
PARKED: Final = 1_000
HELD_SECONDS: Final = 180.0


def normal_messages(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    sent = {}
    for number in range(8):
        words = {"tag": "T", "keys": [f"k{number}", "all"], "properties": {"number": str(number)}}
        sent[scene.send(producer, topic, f"body {number}", **words)["message_id"]] = number
    assert len(sent) == 8, "ids are not unique"
    found = scene.receive_until(consumer, 8)
    same((each["message_id"] for each in found), sent)
    for each in found:
        number = sent[each["message_id"]]
        assert each["body"] == f"body {number}", each
        assert each["topic"] == topic, each
        assert each["tag"] == "T", each
        assert each["keys"] == sorted(["all", f"k{number}"]), each
        assert each["properties"].get("number") == str(number), each
        assert each["attempt"] == 1, each


def tag_filter(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    consumer, producer = scene.simple(group, topic, tags="A"), scene.producer(topic)
    for number in range(8):
        scene.send(producer, topic, f"{number}", tag="AB"[number % 2])
    found = scene.receive_until(consumer, 4)
    same((each["body"] for each in found), ["0", "2", "4", "6"])


def sql_filter(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    consumer, producer = scene.simple(group, topic, sql="k > 5"), scene.producer(topic)
    for number in range(10):
        scene.send(producer, topic, f"{number}", properties={"k": str(number)})
    found = scene.receive_until(consumer, 4)
    same((each["body"] for each in found), ["6", "7", "8", "9"])


def in_order(scene: Scene) -> None:
    topic, group = scene.topic("fifo"), scene.group(in_order=True)
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    for number in range(6):
        scene.send(producer, topic, f"{number}", group="one")
    found = scene.receive_until(consumer, 6, batch=1)
    assert [each["body"] for each in found] == [f"{number}" for number in range(6)], found
    assert {each["group"] for each in found} == {"one"}, found


def delayed(scene: Scene) -> None:
    topic, group = scene.topic("delay"), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    due_ms = int(time.time() * 1000) + 6_000  # noqa: TID251 - the clock of applications
    scene.send(producer, topic, "later", deliver_at_ms=due_ms)
    (found,) = scene.receive_until(consumer, 1)
    # Python's client sends whole seconds.
    early_ms = due_ms - due_ms % 1_000 - found["at_ms"]
    assert early_ms <= 0, f"it came {early_ms} ms too early"
    assert found["at_ms"] - due_ms < 30_000, f"it came {found['at_ms'] - due_ms} ms late"


def recalled(scene: Scene) -> None:
    scene.agent.need("recall")
    topic, group = scene.topic("delay"), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    due_ms = int(time.time() * 1000) + 12_000  # noqa: TID251 - the clock of applications
    sent = scene.send(producer, topic, "never", deliver_at_ms=due_ms)
    assert sent["recall_handle"], "no handle to recall it by"
    scene.send(producer, topic, "comes", deliver_at_ms=due_ms)
    words = {"topic": topic, "recall_handle": sent["recall_handle"]}
    answer = scene.agent.call("recall", name=producer, **words)
    assert answer["message_id"] == sent["message_id"], answer
    found = scene.receive_until(consumer, 1)
    # Past its time, and one more receive of 5 s.
    found += scene.receive(consumer)
    assert [each["body"] for each in found] == ["comes"], found


def transactions(scene: Scene) -> None:
    topic, group = scene.topic("transaction"), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic, check="commit")
    scene.end(scene.half(producer, topic, "committed"), "commit")
    scene.end(scene.half(producer, topic, "rollback"), "rollback")
    scene.half(producer, topic, "asked")
    found = scene.receive_until(consumer, 2, seconds_max=90)
    same((each["body"] for each in found), ["committed", "asked"])
    asked = {each["body"] for each in scene.agent.seen(producer, "check")}
    assert "asked" in asked, f"asked about {asked}"


def rolled_back_when_asked(scene: Scene) -> None:
    topic, group = scene.topic("transaction"), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic, check="rollback")
    scene.half(producer, topic, "asked")
    eventually(lambda: scene.agent.seen(producer, "check"), 90, "it is asked")
    scene.end(scene.half(producer, topic, "committed"), "commit")
    found = scene.receive_until(consumer, 1)
    same((each["body"] for each in found), ["committed"])


def invisible_changed(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    scene.send(producer, topic, "again")
    first = _next(scene, consumer, invisible_s=60)
    began = time.monotonic()
    changed = scene.agent.call("change", name=consumer, n=first["n"], invisible_s=10)
    if changed["handle"] and first["handle"]:
        assert changed["handle"] != first["handle"], "the handle is the old one"
    second = _next(scene, consumer)
    seconds = time.monotonic() - began
    assert 9 < seconds < 35, f"back after {seconds:.1f} s"
    assert (second["message_id"], second["attempt"]) == (first["message_id"], 2), second
    scene.ack(consumer, second)


def acknowledged_after_change(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    scene.send(producer, topic, "once")
    first = _next(scene, consumer, invisible_s=30)
    scene.agent.call("change", name=consumer, n=first["n"], invisible_s=10)
    scene.ack(consumer, first)
    scene.send(producer, topic, "next")
    found = scene.receive_until(consumer, 1)
    deadline = time.monotonic() + 18
    while time.monotonic() < deadline:
        found += scene.receive(consumer)
    assert [each["body"] for each in found] == ["next"], found


def _next(scene: Scene, consumer: str, invisible_s: int = 40) -> Answer:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := scene.receive(consumer, 1, invisible_s):
            return found[0]
    raise AssertionError("nothing comes")


def push_fails_once(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    producer = scene.producer(topic)
    bodies = [f"{number}" for number in range(5)]
    consumer = scene.push(group, topic, warm=_warm(scene, producer, topic), failures={"2": 1})
    for body in bodies:
        scene.send(producer, topic, body)
    found = scene.wait_pushed(consumer, 6, 90)
    same((each["body"] for each in found), [*bodies, "2"])
    attempts = [each["attempt"] for each in found if each["body"] == "2"]
    assert attempts == [1, 2], attempts


def _warm(scene: Scene, producer: str, topic: str, **words: str) -> Callable[[int], object]:
    return lambda number: scene.send(producer, topic, f"{WARM} {number}", **words)


def push_in_order_to_dead_letters(scene: Scene) -> None:
    topic, group = scene.topic("fifo"), scene.group(in_order=True, retries=1)
    producer = scene.producer(topic)
    warm = _warm(scene, producer, topic, group="one")
    consumer = scene.push(group, topic, warm=warm, failures={"1": 9})
    for number in range(4):
        scene.send(producer, topic, f"{number}", group="one")
    eventually(lambda: "3" in scene.bodies(consumer), 90, f"it goes on: {scene.bodies(consumer)}")
    assert scene.bodies(consumer) == ["0", "1", "1", "2", "3"], scene.bodies(consumer)
    same(_dead_letters(scene, group, 1), ["1"])


def push_to_dead_letters(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(retries=1)
    producer = scene.producer(topic)
    warm = _warm(scene, producer, topic)
    consumer = scene.push(group, topic, warm=warm, failures={"bad": 9})
    scene.send(producer, topic, "bad")
    scene.send(producer, topic, "good")
    same(_dead_letters(scene, group, 1), ["bad"])
    same(scene.bodies(consumer), ["bad", "bad", "good"])


def _dead_letters(scene: Scene, group: str, count: int) -> list[str]:
    """What is in a group's dead letter topic, read past the place, by remoting."""
    letters: list[str] = []

    def read() -> bool:
        try:
            with tandem.BlockingPullConsumer(scene.place.target.access, unique("audit")) as audit:
                letters[:] = [
                    each.body.decode() for each in audit.messages(f"%DLQ%{group}", until_end=True)
                ]
        except tandem.ClientError:
            return False  # the topic is made by the first letter
        return len(letters) >= count

    eventually(read, 120, f"{count} dead letters")
    return letters


def another_type_is_refused(scene: Scene) -> None:
    topic, group = scene.topic("delay"), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    said = refusal(scene.agent, "send", name=producer, message={"topic": topic, "body": "now"})
    assert "type" in said.lower(), f"it said {said!r}"
    assert scene.receive(consumer) == [], "it was stored"


def unknown_topic(scene: Scene) -> None:
    began = time.monotonic()
    name, topic = unique("producer"), unique("nowhere")
    said = refusal(scene.agent, "producer", name=name, topics=[topic], check="", **scene.words)
    if not said:
        message = {"topic": topic, "body": "lost"}
        said = refusal(scene.agent, "send", name=name, message=message)
    assert said, "it was taken, or never answered"
    assert time.monotonic() - began < 60, "it hung"


def too_large(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    message = {"topic": topic, "body": "x", "times": BODY_BYTES_MAX + 1}
    said = refusal(scene.agent, "send", name=producer, message=message)
    assert said, "it was taken, or never answered"
    scene.send(producer, topic, "y", times=1_000_000)
    found = scene.receive_until(consumer, 1)
    assert [each["size"] for each in found] == [1_000_000], found


def held_for_long(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    producer = scene.producer(topic)
    warm = _warm(scene, producer, topic)
    consumer = scene.push(group, topic, warm=warm, hold_s={"slow": HELD_SECONDS})
    scene.send(producer, topic, "slow")
    scene.wait_pushed(consumer, 1)
    # What it was not kept for would be here after 60 s, and 60 s after it was done.
    time.sleep(HELD_SECONDS + 65)  # noqa: TID251 - for what should not come
    scene.send(producer, topic, "last")
    scene.wait_pushed(consumer, 2)
    assert scene.bodies(consumer) == ["slow", "last"], scene.bodies(consumer)


def remoting_and_back(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    text = "compressed " * 2_000
    # As RocketMQ's own producers do, with zlib.
    access = scene.place.target.access
    with tandem.BlockingProducer(access, unique("PG"), compress_over_bytes=4_096) as remoting:
        remoting.send(tandem.Message(topic, text.encode(), tags="T", keys=["k"]))
    (found,) = scene.receive_until(consumer, 1)
    assert found["size"] == len(text), f"{found['size']} bytes, and not {len(text)}"
    assert found["body"] == text[:200], found
    assert (found["tag"], found["keys"]) == ("T", ["k"]), found
    sent = scene.send(producer, topic, "back", tag="T", keys=["k"], properties={"p": "q"})
    with tandem.BlockingPullConsumer(scene.place.target.access, unique("audit")) as audit:
        (back,) = [each for each in audit.messages(topic, until_end=True) if each.body == b"back"]
    assert back.msg_id == sent["message_id"], back
    assert (back.tags, list(back.keys), back.properties.get("p")) == ("T", ["k"], "q"), back


def parked_receives(scene: Scene) -> None:
    topic, group = scene.topic(queues=1), scene.group()
    consumer, producer = scene.simple(group, topic), scene.producer(topic)
    with ThreadPoolExecutor(PARKED) as threads:

        def once(_: int) -> list[Answer]:
            found: list[Answer] = []
            deadline = time.monotonic() + 120
            while not found and time.monotonic() < deadline:
                found = scene.receive(consumer, 1, 300)
            for each in found:
                scene.ack(consumer, each)
            return found

        waiting = [threads.submit(once, number) for number in range(PARKED)]
        for number in range(PARKED):
            scene.send(producer, topic, f"{number}")
        found = [each for one in waiting for each in one.result()]
    same((each["body"] for each in found), map(str, range(PARKED)))


SCENARIOS: Final[Mapping[str, Callable[[Scene], None]]] = {
    "8 messages with tag, keys, property: all at a simple consumer, attempt 1": normal_messages,
    "tag filter": tag_filter,
    "SQL92 filter": sql_filter,
    "in order, acknowledged one by one": in_order,
    "delayed, not before its time": delayed,
    "delayed, recalled: never comes": recalled,
    "transactions: commit, roll back, asked and committed": transactions,
    "transaction: asked and rolled back": rolled_back_when_asked,
    "invisible time changed: back after 10 s, attempt 2": invisible_changed,
    "invisible time changed, then acknowledged: never again": acknowledged_after_change,
    "push: one message fails once": push_fails_once,
    "push in order: fails for good, dead letter, the next go on": push_in_order_to_dead_letters,
    "push: two attempts, then a dead letter": push_to_dead_letters,
    "another type than the topic's is refused": another_type_is_refused,
    "unknown topic: an error, and no hang": unknown_topic,
    "4 MiB and one byte are refused, 1 MB arrives": too_large,
    "push: one message held for 3 minutes comes once": held_for_long,
    "remoting's compressed body arrives, and gRPC's at remoting": remoting_and_back,
}
MANY: Final[Mapping[str, Callable[[Scene], None]]] = {
    "1,000 receives wait, each gets one message": parked_receives,
}
