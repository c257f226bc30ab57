"""gRPC clients while nodes of a fenced group are killed: one kill, and all clients see it."""

import threading  # noqa: TID251 - applications send side by side
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from tandem.testing import RunningCluster
from tests.compat.agents import Agent, Answer, Language, OrderError, eventually, refusal
from tests.compat.grpc_places import Place
from tests.compat.grpc_scene import WARM, Scene, same

AFTER_SECONDS: Final = 12.0
"""How long everything goes on after a kill is over."""

COMES_SECONDS_MAX: Final = 150.0
EVERY_SECONDS: Final = 0.05
SENDS_MIN: Final = 20


class Sent(msgspec.Struct):
    """A send that was tried: when it began and ended, and what was said if it failed."""

    body: str
    began: float
    ended: float
    error: str = ""


class Sender:
    """Has one application send one message after the other, in a thread."""

    def __init__(self, send: Callable[[str], object], prefix: str) -> None:
        self._send = send
        self._prefix = prefix
        self._is_over = threading.Event()
        self.tried: list[Sent] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            body, began, error = f"{self._prefix} {number:06}", time.monotonic(), ""
            try:
                self._send(body)
            except (OrderError, TimeoutError) as raised:
                error = str(raised) or "failed"
            self.tried.append(Sent(body, began, time.monotonic(), error))
            number += 1
            self._is_over.wait(EVERY_SECONDS)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(timeout=150)
        assert not self._thread.is_alive(), "a send hangs"

    @property
    def acknowledged(self) -> list[str]:
        return [each.body for each in self.tried if not each.error]

    @property
    def failed(self) -> list[Sent]:
        return [each for each in self.tried if each.error]

    @property
    def longest_silence(self) -> float:
        """The longest time between two acknowledgements, in seconds."""
        ends = [each.ended for each in self.tried if not each.error]
        return max((after - before for before, after in pairwise(ends)), default=0.0)

    def goes_on_after(self, when: float, count: int = SENDS_MIN) -> bool:
        """Whether this many sends that began after `when` were acknowledged."""
        return sum(not each.error and each.began > when for each in list(self.tried)) >= count


class Load:
    """What one application does all the time: sends, order, transactions, and consumes them."""

    def __init__(self, scene: Scene, *, with_transactions: bool = True) -> None:
        self.scene = scene
        plain, ordered = scene.topic(), scene.topic("fifo")
        # One topic each: Node's waits for ever if its settings come before a second route.
        producer, orders = scene.producer(plain), scene.producer(ordered)
        send = scene.send
        self.consumer = scene.listen(
            scene.group(), plain, warm=lambda n: send(producer, plain, f"{WARM} {n}")
        )
        self.ordered_consumer = scene.listen(
            scene.group(in_order=True),
            ordered,
            warm=lambda n: send(orders, ordered, f"{WARM} {n}", group="one"),
        )
        self.halves: list[tuple[str, str]] = []
        self.transactions = self.transacted_consumer = None
        if with_transactions:
            topic = scene.topic("transaction")
            self._transacts = scene.producer(topic, check="commit")
            self.transacted_consumer = scene.listen(
                scene.group(), topic, warm=lambda n: self._commit(topic, f"{WARM} {n}")
            )
            self.transactions = Sender(lambda body: self._transact(topic, body), "half")
        self.plain = Sender(lambda body: send(producer, plain, body), "plain")
        self.ordered = Sender(lambda body: send(orders, ordered, body, group="one"), "ordered")

    def _commit(self, topic: str, body: str) -> None:
        self.scene.end(self.scene.half(self._transacts, topic, body), "commit")

    def _transact(self, topic: str, body: str) -> None:
        """By turns: committed, rolled back, left open (and committed when asked)."""
        # These libraries open a stream anew after up to 5 minutes, or never: so long nobody asks.
        last = "commit" if self.scene.agent.language in ("python", "go", "rust") else "leave"
        how = ("commit", "rollback", last)[int(body[-6:]) % 3]
        body = f"{body} {how}"
        half = self.scene.half(self._transacts, topic, body)
        if how != "leave":
            self.scene.end(half, how)
        self.halves.append((body, how))

    @property
    def senders(self) -> list[Sender]:
        return [self.plain, self.ordered, *([self.transactions] if self.transactions else [])]

    def goes_on_after(self, when: float) -> bool:
        return all(each.goes_on_after(when) for each in self.senders)

    def stop(self) -> None:
        for each in self.senders:
            each.stop()

    def check(self) -> dict[str, Any]:
        """Nothing acknowledged is lost, order is kept, each transaction is decided once.

        Raises:
            AssertionError: One of these is not so.
        """
        self._all_came(self.consumer, self.plain.acknowledged)
        self._all_came(self.ordered_consumer, self.ordered.acknowledged)
        first = list(dict.fromkeys(self.scene.bodies(self.ordered_consumer)))
        assert first == sorted(first), f"order: {_unordered(first)}"
        if self.transacted_consumer:
            wanted = [body for body, how in self.halves if how != "rollback"]
            self._all_came(self.transacted_consumer, wanted)
            came = set(self.scene.bodies(self.transacted_consumer))
            wrong = {body for body, how in self.halves if how == "rollback"} & came
            assert not wrong, f"rolled back, and came: {sorted(wrong)[:5]}"
        senders, halves = (self.plain, self.ordered), self.transactions
        # Of transactions none of the libraries tries a send again.
        return {
            "sends": sum(len(each.tried) for each in senders),
            "failed": sum(len(each.failed) for each in senders),
            "silence": max(each.longest_silence for each in senders),
            "errors": sorted({each.error[:300] for one in senders for each in one.failed}),
            "halves": len(halves.tried) if halves else 0,
            "halves failed": len(halves.failed) if halves else 0,
        }

    def _all_came(self, consumer: str, bodies: Sequence[str]) -> None:
        assert len(bodies) > SENDS_MIN, f"only {len(bodies)} sends were acknowledged"

        def missing() -> list[str]:
            return sorted(set(bodies) - set(self.scene.bodies(consumer)))

        deadline = time.monotonic() + COMES_SECONDS_MAX
        while missing() and time.monotonic() < deadline:
            time.sleep(0.2)  # noqa: TID251 - waits for other processes
        lost = missing()
        assert not lost, f"{len(lost)} of {len(bodies)} acknowledged never came: {lost[:5]}"


def _unordered(bodies: Sequence[str]) -> str:
    wrong = [(one, two) for one, two in pairwise(bodies) if one > two]
    return f"{wrong[:3]} of {len(bodies)}"


def addresses(cluster: RunningCluster, names: Sequence[str]) -> str:
    return ";".join(cluster.spec.node(name).client_address for name in names)


def followers(cluster: RunningCluster) -> list[str]:
    master = cluster.wait_for_master()
    return [name for name in cluster.nodes if name != master]


def endpoints_for(language: Language, cluster: RunningCluster, names: Sequence[str]) -> str:
    """All of `names`, or the last of them where a client knows one address alone."""
    # Node's library joins several to the name of one host.
    return addresses(cluster, names[-1:] if language == "node" else names)


def _each(scenes: Mapping[Language, Any], run: Callable[[Any], Any]) -> dict[Language, Answer]:
    """Run something for each client at the same time; what it raised is that client's result."""
    results: dict[Language, Answer] = {}

    def one(language: Language, value: Any) -> None:  # noqa: ANN401
        try:
            results[language] = {"ok": True, "value": run(value)}
        except (AssertionError, OrderError, TimeoutError) as error:
            results[language] = {"ok": False, "reason": f"{type(error).__name__}: {error}"}

    threads = [threading.Thread(target=one, args=pair) for pair in scenes.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _loads(
    place: Place, agents: Sequence[Agent], cluster: RunningCluster, names: Sequence[str]
) -> tuple[dict[Language, Load], dict[Language, Answer]]:
    scenes = {
        agent.language: Scene(place, agent, endpoints=endpoints_for(agent.language, cluster, names))
        for agent in agents
    }
    begun = _each(scenes, Load)
    loads = {name: result["value"] for name, result in begun.items() if result["ok"]}
    return loads, {name: result for name, result in begun.items() if not result["ok"]}


def master_killed(
    place: Place, cluster: RunningCluster, agents: Sequence[Agent]
) -> dict[Language, Answer]:
    """The master is killed under load; clients that can have all three addresses have them."""
    master = cluster.wait_for_master()
    # The one address of a client that knows one is a follower's.
    names = [master, *followers(cluster)]
    return _struck(place, cluster, agents, names, lambda: [_kill_master(cluster)])


def _kill_master(cluster: RunningCluster) -> str:
    killed = cluster.kill_master()
    cluster.wait_for_master(other_than=killed)
    return killed


def connected_killed(
    place: Place, cluster: RunningCluster, agents: Sequence[Agent]
) -> dict[Language, Answer]:
    """Two addresses, of followers; both nodes are killed, one after the other came back."""
    names = followers(cluster)

    def strike() -> list[str]:
        for name in names:
            cluster.kill(name)
            time.sleep(AFTER_SECONDS)  # noqa: TID251 - sends go on by the other
            cluster.start(name)
            cluster.wait_in_sync()
        return []

    return _struck(place, cluster, agents, names, strike)


def _struck(
    place: Place,
    cluster: RunningCluster,
    agents: Sequence[Agent],
    names: Sequence[str],
    strike: Callable[[], list[str]],
) -> dict[Language, Answer]:
    loads, failed = _loads(place, agents, cluster, names)
    _each(loads, lambda load: eventually(lambda: load.goes_on_after(0), 60, "it sends"))
    try:
        down = strike()
        struck = time.monotonic()
        over = _each(
            loads, lambda load: eventually(lambda: load.goes_on_after(struck), 120, "it goes on")
        )
        time.sleep(AFTER_SECONDS)  # noqa: TID251
    finally:
        stopped = _each(loads, Load.stop)
    for name in down:
        cluster.start(name)
    checked = _each(loads, Load.check)
    for result in (over, stopped):
        failed |= {name: one for name, one in result.items() if not one["ok"]}
    return checked | failed


def only_address_restarted(
    place: Place, agents: Sequence[Agent], kill: Callable[[], None], start: Callable[[], None]
) -> dict[Language, Answer]:
    """The one address that clients have is killed, and is back after a while."""
    begun = _each({agent.language: Scene(place, agent) for agent in agents}, _begin_at_one)
    states = {name: one["value"] for name, one in begun.items() if one["ok"]}
    kill()
    time.sleep(5)  # noqa: TID251
    start()
    back = time.monotonic()
    done = _each(states, lambda state: _go_on_at_one(*state, back=back))
    return {name: one for name, one in begun.items() if not one["ok"]} | done


def _begin_at_one(scene: Scene) -> tuple[Scene, dict[str, Any]]:
    topic, halves_topic, group = scene.topic(), scene.topic("transaction"), scene.group()
    producer, consumer = scene.producer(topic), scene.simple(group, topic)
    pushed_group = scene.group()
    pushed = scene.listen(
        pushed_group, topic, warm=lambda n: scene.send(producer, topic, f"{WARM} {n}")
    )
    scene.receive_until(consumer, 0)
    scene.send(producer, topic, "held")
    (held,) = _received(scene, consumer, 120)
    # Asked at the earliest after 3 s: the node is gone by then.
    transacts = scene.producer(halves_topic, check="commit")
    decided = scene.simple(scene.group(), halves_topic)
    half = scene.half(transacts, halves_topic, "open")
    kept = {"topic": topic, "producer": producer, "consumer": consumer, "pushed": pushed}
    more = {"held": held, "half": half, "decided": decided}
    return scene, kept | more


def _received(scene: Scene, consumer: str, invisible_s: int) -> list[Answer]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [
            each
            for each in scene.receive(consumer, 16, invisible_s)
            if not each["body"].startswith(WARM)
        ]
        if found:
            return found
    raise AssertionError("nothing comes")


def _go_on_at_one(scene: Scene, kept: Mapping[str, Any], *, back: float) -> dict[str, float]:
    """Sends and receives resume, a handle from before is good, and a half is committed."""
    seconds: dict[str, float] = {}

    def send() -> bool:
        words = {"topic": kept["topic"], "body": "after"}
        return not refusal(scene.agent, "send", name=kept["producer"], message=words)

    eventually(send, 60, "it sends again")
    seconds["send"] = time.monotonic() - back
    eventually(lambda: "after" in scene.bodies(kept["pushed"]), 90, "its listener goes on")
    seconds["loop" if "push" in scene.agent.lacks else "push"] = time.monotonic() - back

    def receive(consumer: str, body: str) -> bool:
        try:
            found = scene.receive(consumer)
        except OrderError:
            return False
        for each in found:
            scene.ack(consumer, each)
        return any(each["body"] == body for each in found)

    eventually(lambda: receive(kept["consumer"], "after"), 90, "its simple consumer goes on")
    seconds["receive"] = time.monotonic() - back
    scene.ack(kept["consumer"], kept["held"])
    # Some libraries have been asked by now, and have committed it; then this is refused.
    refusal(scene.agent, "end", half=kept["half"]["half"], how="commit")
    eventually(lambda: receive(kept["decided"], "open"), 90, "its transaction is committed")
    return seconds


def handles_of_the_old_master(
    place: Place, cluster: RunningCluster, agents: Sequence[Agent]
) -> dict[Language, Answer]:
    """What the old master gave out is acknowledged at the new one; what has expired is not."""
    names = [cluster.wait_for_master(), *followers(cluster)]
    scenes = {
        agent.language: Scene(place, agent, endpoints=endpoints_for(agent.language, cluster, names))
        for agent in agents
    }
    begun = _each(scenes, _hold_two)
    states = {name: one["value"] for name, one in begun.items() if one["ok"]}
    killed = _kill_master(cluster)
    done = _each(states, lambda state: _acknowledge_at_the_new_one(*state))
    cluster.start(killed)
    return {name: one for name, one in begun.items() if not one["ok"]} | done


def _hold_two(scene: Scene) -> tuple[Scene, str, list[Answer], Answer]:
    topic, group = scene.topic(queues=1), scene.group()
    producer, consumer = scene.producer(topic), scene.simple(group, topic)
    for number in range(4):
        scene.send(producer, topic, f"{number}")
    held: list[Answer] = []
    while len(held) < 3:
        held += _received(scene, consumer, 60) if held else scene.receive(consumer, 3, 60)
    while not (rest := scene.receive(consumer, 16, 10)):
        pass
    return scene, consumer, held, rest[0]


def _acknowledge_at_the_new_one(
    scene: Scene, consumer: str, held: Sequence[Answer], expires: Answer
) -> dict[str, float]:
    began = time.monotonic()
    for each in held:
        eventually(
            lambda each=each: not refusal(scene.agent, "ack", name=consumer, n=each["n"]),
            50,
            "it is acknowledged",
        )
    seconds = time.monotonic() - began
    found: list[str] = []
    second: Answer = {}
    while time.monotonic() - began < 75:
        try:
            for each in scene.receive(consumer, 16, 40):
                found.append(each["body"])
                second = each
                scene.ack(consumer, each)
        except OrderError:
            time.sleep(1)  # noqa: TID251
    same(found, [expires["body"]])
    assert second["attempt"] == 2, second
    said = refusal(scene.agent, "ack", name=consumer, n=expires["n"])
    # Go's library does not say that an acknowledgement was refused.
    assert said or scene.agent.language == "go", "a handle whose time is over was taken"
    return {"ack": seconds}


def killed_while_it_holds(scene: Scene, holding: Agent) -> dict[str, float]:
    """A push consumer's process is killed with 32 messages in its hands; another gets them."""
    topic, group = scene.topic(queues=1), scene.group()
    producer = scene.producer(topic)
    bodies = [f"{number}" for number in range(32)]
    holder = Scene(scene.place, holding, **scene.words)
    consumer = holder.push(
        group,
        topic,
        warm=lambda n: scene.send(producer, topic, f"{WARM} {n}"),
        hold_s=dict.fromkeys(bodies, 300.0),
    )
    for body in bodies:
        scene.send(producer, topic, body)
    # A client's threads hold 20 of them; it has received all.
    eventually(lambda: len(holder.pushed(consumer)) >= 15, 60, "it holds them")
    holder.agent.kill()
    killed = time.monotonic()
    other = scene.push(group, topic)
    eventually(lambda: set(bodies) <= set(scene.bodies(other)), 120, "another gets them")
    seconds = time.monotonic() - killed
    assert seconds < 58, f"only after {seconds:.0f} s"
    return {"back": seconds}
