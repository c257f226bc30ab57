"""A stand-in for `tandem console`, which answers out of plain dictionaries as the API's page says.

Tests change what it has, between requests; `Fake.answers` replaces single answers, `Fake.push`
sends an event.
"""

import base64
import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tandem.console.page import read_page

NOW_MS: Final = 1_795_632_321_000

Json = dict[str, Any]


def node(name: str, number: int, **fields: object) -> Json:
    return {
        "node": name,
        "address": f"127.0.0.{number}:10911",
        "role": "FOLLOWER",
        "in_sync": True,
        "epoch": 3,
        "incarnation": "5f0c",
        "written": 1_048_576,
        "flushed": 1_048_576,
        "confirm": 1_048_576,
        "lag_bytes": 0,
        "lease_left_ms": -1,
        "is_damaged": False,
        "bad_bytes": 0,
        "health": [],
        "healed": [],
        "trouble": "",
        **fields,
    }


def well(now_ms: int = NOW_MS) -> Json:
    """A cluster of one fenced group, with all nodes up."""
    switch = {
        "reason": "lease expired",
        "at_ms": now_ms - 21_000,
        "previous_master": "broker-a-2",
    }
    return {
        "at_ms": now_ms,
        "cluster": "DefaultCluster",
        "verdict": "well",
        "problems": [],
        "groups": [
            {
                "group": "broker-a",
                "epoch": 3,
                "master": "broker-a-0",
                "takes_messages": True,
                "reasons": [],
                "min_isr": 2,
                "ack_level": "written",
                "in_sync": ["broker-a-0", "broker-a-1", "broker-a-2"],
                "preferred": "",
                "last_switch": switch,
                "coordinator_trouble": "",
                "nodes": [
                    node("broker-a-0", 1, role="MASTER", lease_left_ms=4310),
                    node("broker-a-1", 2),
                    node("broker-a-2", 3),
                ],
            }
        ],
        "classic_nodes": [],
        "switches": [{"group": "broker-a", "epoch": 3, "master": "broker-a-0", **switch}],
    }


def without_master(now_ms: int = NOW_MS) -> Json:
    """The same a moment after its master was killed."""
    cluster = well(now_ms)
    (group,) = cluster["groups"]
    trouble = "connection to 127.0.0.1:10911: refused"
    cluster["verdict"] = "takes no messages"
    cluster["problems"] = [f"broker-a-0: down: {trouble}"]
    group.update(master="", takes_messages=False, reasons=[f"broker-a-0: {trouble}"])
    group["nodes"][0] = node(
        "broker-a-0",
        1,
        role="down",
        in_sync=False,
        epoch=-1,
        written=-1,
        flushed=-1,
        confirm=-1,
        lag_bytes=-1,
        trouble=trouble,
    )
    return cluster


def message(number: int = 0, topic: str = "Orders", **fields: object) -> Json:
    return {
        "id": f"7F00000178F318B4AAC2{number:012X}",
        "offset_id": f"7F00000100002A9F{number:016X}",
        "topic": topic,
        "broker_name": "broker-a",
        "queue_id": number % 4,
        "queue_offset": 149 + number,
        "keys": f"order-{number}",
        "tags": "paid",
        "born_timestamp_ms": NOW_MS - 9_000,
        "born_host": "127.0.0.1:40512",
        "store_timestamp_ms": NOW_MS - 8_996,
        "store_host": "127.0.0.1:10911",
        "physical_offset": 104_857,
        "store_size": 240,
        "reconsume_times": 0,
        "flag": 0,
        "sys_flag": 0,
        "properties": {"KEYS": f"order-{number}", "TAGS": "paid"},
        "body": body(b'{"order": 12345678901234567890, "lines": [], "of": {"a": [1, 2]}}'),
        **fields,
    }


def body(data: bytes, size: int | None = None) -> Json:
    try:
        text: str | None = data.decode()
    except UnicodeDecodeError:
        text = None
    whole = len(data) if size is None else size
    return {
        "size": whole,
        "truncated": whole > len(data),
        "base64": base64.b64encode(data).decode(),
        "text": text,
    }


def topic_row(name: str, kind: str = "topic", **fields: object) -> Json:
    return {
        "topic": name,
        "kind": kind,
        "queues": 8,
        "messages": 1200,
        "last_store_timestamp_ms": NOW_MS - 60_000,
        **fields,
    }


def topic(name: str) -> Json:
    return {
        "topic": name,
        "kind": "topic",
        "message_count": 1200,
        "groups": ["billing"],
        "brokers": [
            {
                "broker_name": "broker-a",
                "addresses": {"0": "127.0.0.1:10911", "2": "127.0.0.2:10911"},
                "read_queue_nums": 8,
                "write_queue_nums": 8,
                "perm": 6,
                "order": False,
                "attributes": {"+delete.policy": "DELETE"},
            }
        ],
        "queues": [
            {
                "broker_name": "broker-a",
                "queue_id": number,
                "min_offset": 0,
                "max_offset": 150,
                "last_store_timestamp_ms": NOW_MS - 1000 if number else None,
                "message_count": 150,
            }
            for number in range(8)
        ],
        "queues_left_out": 0,
    }


def group(name: str) -> Json:
    return {
        "group": name,
        "lag": 17,
        "message_model": "CLUSTERING",
        "consume_type": "CONSUME_PASSIVELY",
        "subscriptions": {"Orders": "*"},
        "dead_letters": 2,
        "members": [
            {
                "client_id": "10.0.0.7@1",
                "address": "10.0.0.7:40512",
                "language": "PYTHON",
                "version": "V5_3_3",
                "queues_count": None,
            }
        ],
        "queues": [
            {
                "topic": "Orders",
                "broker_name": "broker-a",
                "queue_id": number,
                "consumer_offset": 140,
                "pull_offset": 142,
                "broker_offset": 150,
                "last_consumed_timestamp_ms": NOW_MS - 4000 if number else None,
                "client_id": "10.0.0.7@1",
                "lag": 10,
                "inflight": 2,
            }
            for number in range(4)
        ],
        "queues_left_out": 0,
    }


def why(text: str = "stored by broker-a-0") -> Json:
    finding = {
        "kind": "stored",
        "text": text,
        "evidence": ["broker-a: record at 104857"],
        "at_ms": NOW_MS - 8_996,
        "is_concluded": False,
        "due_ms": 0,
        "group": "",
        "node": "broker-a-0",
        "broker": "broker-a",
        "topic": "Orders",
        "queue_id": 0,
        "queue_offset": 149,
        "physical_offset": 104_857,
    }
    return {
        "message": "7F00",
        "topic": "Orders",
        "is_found": True,
        "left_out": 0,
        "asked_at_ms": NOW_MS,
        "lives": [
            {
                "id": "7F00",
                "topic": "Orders",
                "keys": "",
                "tags": "",
                "summary": ["It is in the log of all 3 nodes."],
                "groups": [
                    {
                        "group": "billing",
                        "state": "not yet consumed",
                        "retries": 0,
                        "queue_offset": 149,
                        "committed": -1,
                        "before_it": 9,
                        "due_ms": 0,
                    }
                ],
                "findings": [finding],
                "unknown": [{"what": "when it was consumed", "why": "no client writes traces"}],
            }
        ],
        "absence": [],
        "looked": [{"where": "broker-a-0", "how": "its index", "found": 1}],
        "unknown": [],
    }


def trace() -> Json:
    place = {
        "topic": "%DLQ%billing",
        "broker_name": "broker-a",
        "queue_id": 0,
        "queue_offset": 0,
        "store_timestamp_ms": NOW_MS - 4000,
        "reconsume_times": 2,
        "offset_msg_id": "7F00",
    }
    return {
        "message": message(),
        "groups": [{"group": "billing", "state": "dead letter", "times": 3, "places": [place]}],
        "clients": [
            {
                "event": "sent",
                "time_ms": NOW_MS - 9000,
                "group": "pg",
                "cost_ms": 3,
                "store_host": "127.0.0.1:10911",
                "retry_times": 0,
                "detail": "normal",
            }
        ],
    }


def letter(number: int, **fields: object) -> Json:
    return {
        "message": message(number, "%DLQ%billing"),
        "origin_id": f"7F00000178F318B4AAC2{number:012X}",
        "origin_topic": "Orders",
        "resent": None,
        **fields,
    }


def drill_run(number: int, verdict: str = "PASSED") -> Json:
    return {
        "id": f"2026-11-{number:02d}",
        "started_at": f"2026-11-{number:02d}T06:00:00.000Z",
        "verdict": verdict,
        "seconds": 61.2,
        "sends": 30_000,
        "sync_acknowledged": 29_000 if verdict == "PASSED" else None,
        "sync_lost": 0 if verdict == "PASSED" else None,
        "promises_broken": 0 if verdict == "PASSED" else None,
        "expectations_failed": 0,
        "switches": 4,
        "group_kind": "fenced",
        "rate_per_second": 500.0,
        "tandem_version": "0.9.0",
        "scenarios": ["master-kill"],
        "unavailability": [
            {
                "scenario": "master-kill",
                "promise": "A master that dies is replaced within seconds.",
                "runs": 3,
                "median_seconds": 3.1 + number % 5 / 10,
                "p99_seconds": 4.1,
                "max_seconds": 4.1 + number % 7 / 10,
            }
        ],
    }


def drills(runs: list[Json]) -> Json:
    points = [
        {
            "id": run["id"],
            "started_at": run["started_at"],
            "verdict": run["verdict"],
            **{
                name: run["unavailability"][0][name]
                for name in ("median_seconds", "p99_seconds", "max_seconds")
            },
        }
        for run in runs
    ]
    return {
        "directory": "report",
        "left_out": 0,
        "unreadable": [{"id": "old", "reason": "is no report of a drill"}],
        "runs": runs[::-1],
        "trend": [{"scenario": "master-kill", "points": points}],
    }


def summary(verdict: str = "PASSED") -> Json:
    return {
        "verdict": verdict,
        "promises_broken": 0,
        "sync_lost": 0,
        "stored_but_missing": None,
        "duplicated": 0,
        "byte_identical": True,
        "sends": 30_000,
        "seconds": 61.2,
        "started_at": "2026-11-28T06:00:00.000Z",
        "stopped_because": "",
        "settings": {"scenarios": ["master-kill"], "nodes": ["broker-a-0"], "seed": 7},
        "expectations": [
            {
                "expected": "sends are OK again within 10 s",
                "seen": "after 3.2 s",
                "held": True,
                "scenario": "master-kill",
            }
        ],
        "switches": [],
        "unavailability": [],
        "reasons": [],
        "exits": [],
    }


def setting(name: str, value: object, default: object, **fields: object) -> Json:
    return {
        "name": name,
        "value": value,
        "default": default,
        "is_needed": False,
        "is_changed": value != default,
        "may_be": "ASYNC_FLUSH or SYNC_FLUSH",
        "rocketmq_name": "flushDiskType",
        "description": "When a record is on the disk.",
        **fields,
    }


def error(code: str, text: str, remedy: str = "do better", **details: object) -> Json:
    return {"error": {"code": code, "message": text, "remedy": remedy, "details": details}}


Answer = tuple[int, Json]


class Fake:
    """What the console has, and how it is spoken to."""

    def __init__(self) -> None:
        self.login = "keys"
        self.secret = "sesame"
        self.sessions: set[str] = set()
        self.cluster = well()
        self.topics = [topic_row("Orders"), topic_row("%DLQ%billing", "dead_letters", messages=2)]
        self.topic_names: dict[str, Json] = {}
        self.groups: list[Json] = [
            {"group": "billing", "members_count": 1, "topics": ["Orders"], "lag": 17}
        ]
        self.group_names: dict[str, Json] = {}
        self.messages = [message(number) for number in range(3)]
        self.letters = [letter(number) for number in range(2)]
        self.drills = drills([drill_run(number) for number in range(1, 28)])
        self.summary = summary()
        self.settings = [
            setting("store.flush_disk_type", "ASYNC_FLUSH", "ASYNC_FLUSH"),
            setting("groups.broker-a.min_isr", 2, 1, rocketmq_name=""),
        ]
        self.answers: dict[tuple[str, str], Answer] = {}
        """By method and path: said in place of what is usual."""
        self.requests: list[tuple[str, str, Json]] = []
        """Method, path with what follows `?`, body."""
        self.gate = threading.Event()
        """Cleared, the stream says nothing and requests wait: a machine that hangs."""
        self.gate.set()
        self._listeners: list[queue.Queue[tuple[str, Json] | None]] = []
        self._plans: dict[str, Json] = {}
        self._counter = 0

    def push(self, name: str, data: Json) -> None:
        for listener in self._listeners:
            listener.put((name, data))

    def show(self, cluster: Json) -> None:
        self.cluster = cluster
        self.push("cluster", cluster)

    def end_sessions(self) -> None:
        self.sessions.clear()

    def end_streams(self) -> None:
        for listener in self._listeners:
            listener.put(None)

    def listen(self) -> "queue.Queue[tuple[str, Json] | None]":
        listener: queue.Queue[tuple[str, Json] | None] = queue.Queue()
        listener.put(("cluster", self.cluster))
        self._listeners.append(listener)
        return listener

    def forget(self, listener: "queue.Queue[tuple[str, Json] | None]") -> None:
        self._listeners.remove(listener)

    def who(self, cookie: str) -> Json:
        logged_in = cookie in self.sessions
        return {
            "logged_in": logged_in,
            "login": self.login,
            "user": "shop" if logged_in and self.login == "keys" else "",
            "cluster": "DefaultCluster" if logged_in else "",
            "version": "0.9.0" if logged_in else "",
            "idle_seconds": 1800,
            "now_ms": self.cluster["at_ms"],
            "has_file": True,
        }

    def log_in(self, body: Json) -> str | None:
        """The cookie of a new session."""
        if self.secret not in (body.get("secret"), body.get("token")):
            return None
        self._counter += 1
        cookie = f"session-{self._counter}"
        self.sessions.add(cookie)
        return cookie

    def answer(  # noqa: C901, PLR0911, PLR0912 - one line a path
        self, method: str, path: str, query: Mapping[str, str], body: Json
    ) -> Answer:
        parts = [unquote(part) for part in path.split("/")]
        match method, parts:
            case "GET", ["cluster"]:
                return 200, self.cluster
            case "GET", ["topics"]:
                return 200, self._topics(query)
            case "GET", ["topics", name]:
                return 200, self.topic_names.get(name) or topic(name)
            case "GET", ["groups"]:
                wanted = query.get("filter", "").lower()
                found = [g for g in self.groups if wanted in g["group"].lower()]
                shown = found[: int(query.get("limit", 200))]
                return 200, {
                    "groups": shown,
                    "total": len(found),
                    "offset": 0,
                    "limit": 200,
                    "at_ms": NOW_MS,
                }
            case "GET", ["groups", name]:
                return 200, self.group_names.get(name) or group(name)
            case "POST", ["groups", name, "reset"]:
                return self._reset(name, body)
            case "GET", ["messages"]:
                return 200, {
                    "messages": self.messages,
                    "cursor": None if "cursor" in query else "1.1",
                }
            case "GET", ["messages", _]:
                return 200, {"message": self.messages[0]}
            case "GET", ["messages", _, "trace"]:
                return 200, trace()
            case "GET", ["messages", _, "why"]:
                return 200, why()
            case "GET", ["dead-letters"]:
                return 200, {
                    "group": query["group"],
                    "topic": "%DLQ%" + query["group"],
                    "total": len(self.letters),
                    "letters": self.letters,
                    "cursor": None,
                }
            case "POST", ["dead-letters", "resend"]:
                return self._resend(body)
            case "GET", ["settings"]:
                if "node" in query:
                    return 200, {
                        "node": query["node"],
                        "settings": {"flushDiskType": "ASYNC_FLUSH", "brokerName": "broker-a"},
                    }
                return 200, {
                    "file": "cluster.yaml",
                    "nodes": ["broker-a-0", "broker-a-1"],
                    "settings": self.settings,
                }
            case "GET", ["drills"]:
                return 200, self.drills
            case "GET", ["drills", name]:
                return 200, {"id": name, "summary": self.summary}
        return 404, error("no_route", f"no path {path}")

    def _topics(self, query: Mapping[str, str]) -> Json:
        wanted = query.get("filter", "").lower()
        found = [
            row
            for row in self.topics
            if wanted in row["topic"].lower()
            and (row["kind"] == "topic" or query.get("system") == "true")
        ]
        offset, limit = int(query.get("offset", 0)), int(query.get("limit", 200))
        assert limit <= 50 or query.get("counts") != "true"
        return {
            "topics": found[offset : offset + limit],
            "total": len(found),
            "offset": offset,
            "limit": limit,
        }

    def _reset(self, name: str, body: Json) -> Answer:
        if "to" in body:
            self._counter += 1
            old, new = 140, {"earliest": 0, "latest": 150}.get(body["to"], body.get("number"))
            plan = {
                "number": f"plan-{self._counter}",
                "group": name,
                "topic": body["topic"],
                "members_count": 1,
                "expires_ms": self.cluster["at_ms"] + 600_000,
                "again": 560,
                "skipped": 0,
                "changes": [
                    {
                        "topic": body["topic"],
                        "broker_name": "broker-a",
                        "queue_id": number,
                        "old_offset": old if number else None,
                        "new_offset": new,
                        "min_offset": 0,
                        "max_offset": 150,
                    }
                    for number in range(4)
                ],
            }
            self._plans[str(plan["number"])] = plan
            return 200, {"plan": plan}
        if body["number"] not in self._plans:
            return 409, error("plan_over", "the plan is too old")
        if body["name"] != name:
            return 409, error("name_differs", "another name was typed")
        plan = self._plans.pop(body["number"])
        return 200, {"done": {**plan, "way": "broker"}}

    def _resend(self, body: Json) -> Answer:
        (found,) = (x for x in self.letters if body["id"] == x["message"]["offset_id"])
        before = found["resent"]
        if before and not body["again"]:
            text = f"dead letter {body['id']} was sent again already, by {before['by']}"
            return 409, error("sent_before", text, resent=before)
        found["resent"] = {
            "times": (before["times"] if before else 0) + 1,
            "message_id": "9A6F",
            "at_ms": self.cluster["at_ms"],
            "by": "shop",
        }
        return 200, {
            "sent": {
                "letter_id": body["id"],
                "origin_id": found["origin_id"],
                "topic": "Orders",
                "message_id": "9A6F",
                "copies": 1,
            }
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: Fake

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path == "/":
            page = read_page()
            headers = {"Content-Security-Policy": page.policy}
            self._send(200, page.body, "text/html; charset=utf-8", headers)
        elif self.path.startswith("/api/v1/"):
            self._serve("GET")
        else:
            self._send(404, b"{}", "application/json")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        fake = self.fake
        fake.gate.wait()
        url = urlsplit(self.path)
        path = url.path.removeprefix("/api/v1/")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        said: Json = json.loads(data) if data else {}
        fake.requests.append((method, self.path.removeprefix("/api/v1/"), said))
        cookie = self.headers.get("Cookie", "").removeprefix("session=")
        if method != "GET":
            origin = f"http://{self.headers['Host']}"
            if self.headers.get("X-Tandem") != "1" or self.headers.get("Origin") != origin:
                return self._json(403, error("wrong_origin", "not from this page"))
        if path == "session":
            return self._session(method, said, cookie)
        if cookie not in fake.sessions:
            return self._json(401, error("no_session", "no session, or it is over"))
        replaced = fake.answers.get((method, path))
        if replaced is not None:
            return self._json(*replaced)
        if path == "events":
            return self._events()
        return self._json(*fake.answer(method, path, query, said))

    def _session(self, method: str, said: Json, cookie: str) -> None:
        headers: dict[str, str] = {}
        if method == "POST":
            made = self.fake.log_in(said)
            if made is None:
                return self._json(401, error("wrong_keys", "no user has these keys"))
            cookie = made
            headers = {"Set-Cookie": f"session={cookie}; HttpOnly; SameSite=Strict"}
        elif method == "DELETE":
            self.fake.sessions.discard(cookie)
        return self._json(200, self.fake.who(cookie), headers)

    def _events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        listener = self.fake.listen()
        try:
            while (event := listener.get()) is not None:
                self.fake.gate.wait()
                name, data = event
                text = f"event: {name}\nid: 1-1\ndata: {json.dumps(data)}\n\n"
                self.wfile.write(text.encode())
                self.wfile.flush()
        except OSError:
            pass
        finally:
            self.fake.forget(listener)
        self.close_connection = True

    def _json(self, status: int, said: Json, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(said).encode()
        self._send(
            status, data, "application/json", {"Cache-Control": "no-store", **(headers or {})}
        )

    def _send(
        self, status: int, data: bytes, kind: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(data)


class Served:
    """A fake that is served on a port; it can be stopped and started again on the same one."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"fake": self.fake})
        deadline = time.monotonic() + 60
        while True:
            try:
                self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self.fake.end_streams()
        self._server = None

    @property
    def is_up(self) -> bool:
        return self._server is not None


@contextmanager
def served_console() -> Iterator[Served]:
    served = Served(Fake())
    try:
        yield served
    finally:
        served.fake.gate.set()
        if served.is_up:
            served.stop()
