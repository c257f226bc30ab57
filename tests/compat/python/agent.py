"""An application with RocketMQ's `rocketmq-python-client` that does what it is asked to.

One line of JSON on standard input is one order, `{"id": 1, "op": "send", ...}`; each is answered
by a line `{"id": 1, ...}` with what came of it, or `{"id": 1, "error": "..."}`. Lines with `event`
are what listeners saw. The agents of the other languages take the same orders;
`tests/compat/agents.py` starts all of them.
"""

from __future__ import annotations

import json
import os
import sys
import threading  # noqa: TID251 - an application's, whose library has threads
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

Order = dict[str, Any]
Answer = dict[str, Any]

THREADS_MAX = 1200

clients: dict[str, Any] = {}
received: dict[int, Any] = {}
halves: dict[int, Any] = {}
writing = threading.Lock()
counting = threading.Lock()
tls = json.loads(sys.argv[1])["tls"]


def say(**line: object) -> None:
    with writing:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def keep(table: dict[int, Any], value: object) -> int:
    with counting:
        number = len(table)
        table[number] = value
        return number


def configuration(order: Order) -> Any:  # noqa: ANN401
    keys = order.get("keys") or ["", ""]
    return ClientConfiguration(
        order["endpoints"], Credentials(*keys), request_timeout=order.get("timeout_s", 3)
    )


def filters(order: Order) -> dict[str, Any]:
    if order.get("sql"):
        return {order["topic"]: FilterExpression(order["sql"], FilterType.SQL)}
    return {order["topic"]: FilterExpression(order.get("tags") or "*")}


def message_of(given: Order) -> Any:  # noqa: ANN401
    message = Message()
    message.topic = given["topic"]
    message.body = given["body"].encode() * given.get("times", 1)
    if given.get("tag"):
        message.tag = given["tag"]
    for key in given.get("keys") or ():
        # What is assigned is added.
        message.keys = key
    for key, value in (given.get("properties") or {}).items():
        message.add_property(key, value)
    if given.get("group"):
        message.message_group = given["group"]
    if given.get("deliver_at_ms"):
        message.delivery_timestamp = int(given["deliver_at_ms"] / 1000)
    return message


def shown(message: Any) -> Answer:  # noqa: ANN401
    body = message.body
    return {
        "message_id": message.message_id,
        "topic": message.topic,
        "body": body[:200].decode(errors="replace"),
        "size": len(body),
        "tag": message.tag or "",
        "keys": sorted(message.keys or ()),
        "properties": dict(message.properties or {}),
        "group": message.message_group or "",
        "attempt": message.delivery_attempt or 0,
        "handle": message.receipt_handle or "",
        "at_ms": int(time.time() * 1000),  # noqa: TID251 - the clock of applications
    }


class Checker(TransactionChecker):  # type: ignore[misc]
    def __init__(self, name: str, answer: str) -> None:
        self.name = name
        self.answer = answer

    def check(self, message: Any) -> Any:  # noqa: ANN401
        body = message.body.decode()
        say(event="check", name=self.name, body=body)
        # What it has rolled back, or would, has this in its body.
        answer = "rollback" if "rollback" in body else self.answer
        return getattr(TransactionResolution, answer.upper())


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self, order: Order) -> None:
        self.name = order["name"]
        self.failures = dict(order.get("failures") or {})
        self.hold_s = dict(order.get("hold_s") or {})

    def consume(self, message: Any) -> Any:  # noqa: ANN401
        seen = shown(message)
        with counting:
            left = self.failures.get(seen["body"], 0)
            self.failures[seen["body"]] = left - 1
        say(event="message", name=self.name, ok=left <= 0, **seen)
        time.sleep(self.hold_s.get(seen["body"], 0))  # noqa: TID251 - it takes long
        return ConsumeResult.FAILURE if left > 0 else ConsumeResult.SUCCESS


def producer(order: Order) -> Answer:
    checker = Checker(order["name"], order["check"]) if order.get("check") else None
    made = Producer(configuration(order), tuple(order["topics"]), checker=checker, tls_enable=tls)
    made.startup()
    clients[order["name"]] = made
    return {}


def send(order: Order) -> Answer:
    receipt = clients[order["name"]].send(message_of(order["message"]))
    return {"message_id": receipt.message_id, "recall_handle": receipt.recall_handle or ""}


def half(order: Order) -> Answer:
    transaction = clients[order["name"]].begin_transaction()
    receipt = clients[order["name"]].send(message_of(order["message"]), transaction)
    return {"message_id": receipt.message_id, "half": keep(halves, transaction)}


def end(order: Order) -> Answer:
    transaction = halves[order["half"]]
    (transaction.commit if order["how"] == "commit" else transaction.rollback)()
    return {}


def recall(order: Order) -> Answer:
    return {
        "message_id": clients[order["name"]].recall_message(order["topic"], order["recall_handle"])
    }


def simple(order: Order) -> Answer:
    made = SimpleConsumer(
        configuration(order),
        order["group"],
        filters(order),
        await_duration=order.get("await_s", 5),
        tls_enable=tls,
    )
    made.startup()
    clients[order["name"]] = made
    return {}


def receive(order: Order) -> Answer:
    messages = clients[order["name"]].receive(order["max"], order["invisible_s"]) or []
    return {"messages": [{**shown(each), "n": keep(received, each)} for each in messages]}


def ack(order: Order) -> Answer:
    clients[order["name"]].ack(received[order["n"]])
    return {}


def change(order: Order) -> Answer:
    message = received[order["n"]]
    clients[order["name"]].change_invisible_duration(message, order["invisible_s"])
    return {"handle": message.receipt_handle}


def push(order: Order) -> Answer:
    made = PushConsumer(
        configuration(order), order["group"], Listener(order), filters(order), tls_enable=tls
    )
    made.startup()
    clients[order["name"]] = made
    return {}


def close(order: Order) -> Answer:
    clients.pop(order["name"]).shutdown()
    return {}


OPERATIONS: dict[str, Callable[[Order], Answer]] = {
    each.__name__: each
    for each in (producer, send, half, end, recall, simple, receive, ack, change, push, close)
}


def serve(order: Order) -> None:
    try:
        say(id=order["id"], **OPERATIONS[order["op"]](order))
    except Exception as error:  # noqa: BLE001 - it is the answer
        say(id=order["id"], error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    threads = ThreadPoolExecutor(THREADS_MAX)
    say(ready=True)
    for line in sys.stdin:
        threads.submit(serve, json.loads(line))
    # What clients have open would keep the process alive.
    os._exit(0)
