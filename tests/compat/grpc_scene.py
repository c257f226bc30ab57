"""What scenarios of gRPC clients share: one application at one place, with names of its own."""

import threading  # noqa: TID251 - an application receives on and on
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tests.compat.agents import Agent, Answer, OrderError, eventually, unique
from tests.compat.grpc_places import Kind, Place

ARRIVES_SECONDS_MAX: Final = 60.0
INVISIBLE_SECONDS: Final = 60
TIMEOUT_SECONDS: Final = 15
"""Of a client's requests: its own, 3 s, is what a busy machine needs for one of them."""

AWAIT_SECONDS: Final = 5
"""How long a receive waits for messages."""

WARM: Final = "warm"


class Scene:
    """An application at a place. Everything that it makes has a name that nothing else has."""

    def __init__(self, place: Place, agent: Agent, **words: Any) -> None:  # noqa: ANN401
        self.place = place
        self.agent = agent
        self.words = {"endpoints": place.endpoints, "timeout_s": TIMEOUT_SECONDS, **words}
        self._open: list[str] = []

    def topic(self, kind: Kind = "normal", queues: int = 2) -> str:
        name = unique(f"grpc-{kind}")
        self.place.make_topics(name, kind=kind, queues=queues)
        return name

    def group(self, *, in_order: bool = False, retries: int = 16) -> str:
        name = unique("grpc-group")
        self.place.make_group(name, in_order=in_order, retries=retries)
        return name

    @property
    def await_s(self) -> int:
        if self.agent.language != "rust":
            return AWAIT_SECONDS
        # Its receives have no more time than they wait for: a proxy answers when that is over, or
        # after 20 s, and there as here 5 s are too little to begin with.
        return 25 if self.place.name == "real" else 15

    def producer(self, *topics: str, check: str = "") -> str:
        return self._made("producer", topics=list(topics), check=check)

    def _made(self, op: str, **words: Any) -> str:  # noqa: ANN401
        name = unique(op)
        self.agent.call(op, name=name, **self.words, **words)
        self._open.append(name)
        return name

    def send(self, producer: str, topic: str, body: str, **words: Any) -> Answer:  # noqa: ANN401
        return self.agent.call(
            "send", name=producer, message={"topic": topic, "body": body, **words}
        )

    def simple(self, group: str, topic: str, *, tags: str = "", sql: str = "") -> str:
        """A simple consumer that has received once: from now on its group gets everything."""
        name = self._made(
            "simple", group=group, topic=topic, tags=tags, sql=sql, await_s=self.await_s
        )
        deadline = time.monotonic() + ARRIVES_SECONDS_MAX
        while True:
            try:
                for each in self.receive(name):
                    self.ack(name, each)
            except OrderError:
                # A proxy answers that there are no settings until it has them.
                if self.place.name != "real" or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)  # noqa: TID251
            else:
                return name

    def receive(
        self, consumer: str, count: int = 16, invisible_s: int = INVISIBLE_SECONDS
    ) -> list[Answer]:
        words = {"max": count, "invisible_s": invisible_s}
        found: list[Answer] = self.agent.call("receive", name=consumer, **words)["messages"]
        return found

    def ack(self, consumer: str, message: Mapping[str, Any]) -> None:
        self.agent.call("ack", name=consumer, n=message["n"])

    def receive_until(
        self,
        consumer: str,
        count: int,
        *,
        seconds_max: float = ARRIVES_SECONDS_MAX,
        batch: int = 16,
        invisible_s: int = INVISIBLE_SECONDS,
    ) -> list[Answer]:
        """Receive and acknowledge until there are this many, then once more: nothing else comes."""
        found: list[Answer] = []
        deadline = time.monotonic() + seconds_max
        while len(found) < count and time.monotonic() < deadline:
            for each in self.receive(consumer, batch, invisible_s):
                self.ack(consumer, each)
                found.append(each)
        return found + self.receive(consumer, batch, invisible_s)

    def push(
        self,
        group: str,
        topic: str,
        *,
        warm: Callable[[int], object] | None = None,
        failures: Mapping[str, int] | None = None,
        hold_s: Mapping[str, float] | None = None,
        tags: str = "",
    ) -> str:
        """A push consumer; with `warm`, which sends number N of `warm N`, one that has begun."""
        words = {"failures": dict(failures or {}), "hold_s": dict(hold_s or {}), "tags": tags}
        name = self._made("push", group=group, topic=topic, **words)
        if warm is None:
            return name
        deadline = time.monotonic() + ARRIVES_SECONDS_MAX
        number = 0
        while not self.agent.seen(name):
            assert time.monotonic() < deadline, "the push consumer gets nothing"
            warm(number)
            number += 1
            time.sleep(1)  # noqa: TID251
        return name

    def listen(self, group: str, topic: str, *, warm: Callable[[int], object]) -> str:
        """A push consumer that has begun; where a library has none, receives without an end."""
        if "push" not in self.agent.lacks:
            return self.push(group, topic, warm=warm)
        name = self.simple(group, topic)
        threading.Thread(target=self._receive_on, args=(name,), daemon=True).start()
        return name

    def _receive_on(self, consumer: str) -> None:
        while self.agent.is_alive:
            try:
                for each in self.receive(consumer):
                    self.agent.events.append({"event": "message", "name": consumer, **each})
                    self.ack(consumer, each)
            except (OrderError, TimeoutError):
                time.sleep(0.2)  # noqa: TID251 - what was not acknowledged comes again

    def pushed(self, consumer: str) -> list[Answer]:
        """What its listener was given, without what was sent to warm it up."""
        return [each for each in self.agent.seen(consumer) if not each["body"].startswith(WARM)]

    def wait_pushed(
        self, consumer: str, count: int, seconds_max: float = ARRIVES_SECONDS_MAX
    ) -> list[Answer]:
        eventually(
            lambda: len(self.pushed(consumer)) >= count,
            seconds_max,
            f"{count} deliveries, but {self.bodies(consumer)}",
        )
        return self.pushed(consumer)

    def bodies(self, consumer: str) -> list[str]:
        return [each["body"] for each in self.pushed(consumer)]

    def half(self, producer: str, topic: str, body: str) -> Answer:
        return self.agent.call("half", name=producer, message={"topic": topic, "body": body})

    def end(self, half: Mapping[str, Any], how: str) -> None:
        self.agent.call("end", half=half["half"], how=how)

    def close(self) -> None:
        """Close what was opened; that one does not close is an error."""
        for name in self._open:
            self.agent.call("close", name=name, seconds_max=60)


def same(found: Iterable[Any], expected: Iterable[Any]) -> None:
    """Compare without order.

    Raises:
        AssertionError: They differ, and how.
    """
    left, right = Counter(map(str, found)), Counter(map(str, expected))
    assert left == right, f"missing {list(right - left)[:8]}, too many {list(left - right)[:8]}"
