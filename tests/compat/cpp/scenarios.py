"""Scenarios for RocketMQ's C++ client, through the package `rocketmq`; a process for each.

Arguments: name servers with ';' between, prefix of topics that exist (numbered from 0), file for
the results, part of the names to run.
"""

import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from rocketmq import client, exceptions

WAIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05

SERVERS, PREFIX, FILE, PART = sys.argv[1:5]


class Scenario:
    """One row: its topic and group. What it starts lives as long as the process."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.topic = f"{PREFIX}_{number}"
        self.group = f"G_{PREFIX}_{number}"
        self.kept: list[Any] = []

    def producer(self) -> Any:  # noqa: ANN401 - the library has no types
        made = client.Producer(f"P_{self.group}")
        made.set_namesrv_addr(SERVERS)
        made.start()
        self.kept.append(made)
        return made

    def taking(
        self, *, expression: str = "*", orderly: bool = False, fails_times: int = 0, name: str = "c"
    ) -> list[tuple[str, int]]:
        """Start a consumer; what it has seen, and the how manieth time."""
        seen: list[tuple[str, int]] = []

        def handle(message: Any) -> None:  # noqa: ANN401
            seen.append((message.body.decode(), message.reconsume_times))
            if message.reconsume_times < fails_times:
                raise ValueError("not yet")

        made = client.PushConsumer(self.group, orderly=orderly)
        made.set_namesrv_addr(SERVERS)
        made.set_instance_name(f"{name}{self.group}")
        made.subscribe(self.topic, handle, expression)
        made.start()
        self.kept.append(made)
        return seen


def message(topic: str, body: str, *, tags: str = "A") -> Any:  # noqa: ANN401
    made = client.Message(topic)
    made.set_tags(tags)
    made.set_keys("key")
    made.set_body(body)
    return made


def send(made: Any, topic: str, count: int) -> None:  # noqa: ANN401
    for body in numbered(count):
        result = made.send_sync(message(topic, body))
        assert result.status == client.SendStatus.OK, result


def numbered(count: int) -> set[str]:
    return {f"body{number}" for number in range(count)}


def until(holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"after {WAIT_SECONDS:g} s: {otherwise()}"
        time.sleep(POLL_SECONDS)  # noqa: TID251 - threads of a program of its own


def awaited(seen: list[tuple[str, int]], expected: Iterable[str]) -> None:
    bodies = set(expected)
    until(lambda: {body for body, _ in seen} >= bodies, lambda: f"seen {seen}")
    time.sleep(0.3)  # noqa: TID251 - for what should not come
    assert {body for body, _ in seen} == bodies, f"seen {seen}"


def send_sync(scenario: Scenario) -> None:
    send(scenario.producer(), scenario.topic, 5)
    awaited(scenario.taking(), numbered(5))


def send_async(scenario: Scenario) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    made = scenario.producer()
    for body in numbered(3):
        made.send_async(message(scenario.topic, body), answers.put, answers.put)
    for _ in range(3):
        answer = answers.get(timeout=20)
        assert isinstance(answer, client.SendResult), answer
    awaited(scenario.taking(), numbered(3))


def send_one_way(scenario: Scenario) -> None:
    made = scenario.producer()
    for body in numbered(3):
        scenario.kept.append(message(scenario.topic, body))
        made.send_oneway(scenario.kept[-1])
    awaited(scenario.taking(), numbered(3))


def topic_is_made(scenario: Scenario) -> None:
    send(scenario.producer(), f"CppAuto_{PREFIX}", 2)


def compressed(scenario: Scenario) -> None:
    body = "compressible " * 5_000
    scenario.producer().send_sync(message(scenario.topic, body))
    awaited(scenario.taking(), [body])


def delayed(scenario: Scenario) -> None:
    made = scenario.producer()
    seen = scenario.taking()
    late = message(scenario.topic, "late")
    late.set_delay_time_level(2)
    begun = time.monotonic()
    made.send_sync(late)
    awaited(seen, ["late"])
    assert 4.5 < time.monotonic() - begun < 14, time.monotonic() - begun


def with_tags(scenario: Scenario) -> None:
    made = scenario.producer()
    for tag in ("A", "B", "C"):
        made.send_sync(message(scenario.topic, tag, tags=tag))
    awaited(scenario.taking(expression="A || C"), ["A", "C"])


def in_order(scenario: Scenario) -> None:
    made = scenario.producer()
    for number in range(10):
        made.send_orderly(message(scenario.topic, f"{number}"), 2)
    seen = scenario.taking(orderly=True)
    awaited(seen, [f"{number}" for number in range(10)])
    order = [body for body, _ in seen]
    assert order == sorted(order), order


def retried(scenario: Scenario) -> None:
    send(scenario.producer(), scenario.topic, 1)
    seen = scenario.taking(fails_times=1)
    until(lambda: ("body0", 1) in seen, lambda: f"seen {seen}")


def shared(scenario: Scenario) -> None:
    one, two = scenario.taking(name="one"), scenario.taking(name="two")
    time.sleep(25)  # noqa: TID251 - one round of rebalancing
    send(scenario.producer(), scenario.topic, 20)
    until(lambda: bool(one and two) and len(one + two) >= 20, lambda: f"{len(one)}, {len(two)}")


def pulled(scenario: Scenario) -> None:
    send(scenario.producer(), scenario.topic, 6)
    made = client.PullConsumer(scenario.group)
    made.set_namesrv_addr(SERVERS)
    made.start()
    scenario.kept.append(made)
    bodies = {one.body.decode() for one in made.pull(scenario.topic)}
    assert bodies == numbered(6), bodies


ROWS: Final[dict[str, Callable[[Scenario], None]]] = {
    "send sync, push": send_sync,
    "send async": send_async,
    "send one-way": send_one_way,
    "topic is made by the first message": topic_is_made,
    "compressed body": compressed,
    "delay level": delayed,
    "push with tags": with_tags,
    "push in order": in_order,
    "retry, then success": retried,
    "two consumers share the queues": shared,
    "pull": pulled,
}


def run_row(name: str) -> None:
    """Run one row and write its line; end without stopping what the library has started."""
    scenario = Scenario(name, list(ROWS).index(name))
    begun, reason = time.monotonic(), ""
    try:
        ROWS[name](scenario)
    except (AssertionError, ValueError, queue.Empty, exceptions.RocketMQException) as error:
        reason = f"{type(error).__name__} {error}"
    write_line(name, begun, reason)
    os._exit(0)


def write_line(name: str, begun: float, reason: str) -> None:
    line = {"name": name, "ok": not reason, "seconds": time.monotonic() - begun, "reason": reason}
    with Path(FILE).open("a") as file:
        file.write(json.dumps(line) + "\n")


def main() -> None:
    """Run the rows side by side, each in a process of its own: one that crashes is one row."""
    if PART.startswith("="):
        run_row(PART[1:])
    begun = time.monotonic()
    running = {
        name: subprocess.Popen([sys.executable, __file__, SERVERS, PREFIX, FILE, f"={name}"])
        for name in ROWS
        if PART in name
    }
    for name, process in running.items():
        if (code := process.wait()) != 0:
            write_line(name, begun, f"the process ended with {code}")


if __name__ == "__main__":
    main()
