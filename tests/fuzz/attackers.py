"""Who sends what where: one attacker a target, in batches that a seed and a number repeat."""

import base64
import hashlib
import json
import re
import time
from random import Random
from typing import Any, ClassVar, Final, Protocol

import msgspec

from ha.fenced.protocol import (
    ENVELOPE,
    Attach,
    Challenge,
    Hello,
    Refused,
    Report,
    Welcome,
    decode_message,
    encode_message,
    encode_report,
    proven,
)
from tandem.cluster.control import socket_path
from tandem.coordinator.client import embedded_password
from tandem.coordinator.etcd_v3 import authenticate_request
from tandem.coordinator.tokens import USER
from tandem.wire.crc import raw_crc32
from tandem.wire.group_state import GroupKeys
from tandem.wire.secret_keys import Purpose, key_of
from tests.fuzz import hostile
from tests.fuzz.remoting import Frames, last_request
from tests.fuzz.wire import Line
from tests.fuzz.world import CLASSIC, FENCED, IMPOSTOR_CLASSIC, IMPOSTOR_FENCED, SECRET, World

SLOW_MAX: Final = 16
"""Connections that are in the middle of something for ever, a byte now and then."""


class Attacker(Protocol):
    """One target. `batch` sends what the number of the batch, through `chance`, decides."""

    def batch(self, chance: Random, number: int) -> int:
        """Send; return how many frames, messages or requests it was."""


class RemotingAttacker:
    """Requests on the ports of clients, or of name servers."""

    FRAMES: ClassVar = 128

    def __init__(self, world: World, *, name_server: bool) -> None:
        self._name_server = name_server
        self._targets = []
        for name in world.running_nodes():
            port = int(world.spec.node(name).client_address.rpartition(":")[2])
            self._targets.append(Line((world.address(name), 9_876 if name_server else port)))
        self._slow: list[tuple[Line, bytes]] = []

    def batch(self, chance: Random, number: int) -> int:
        """Pipelined requests, and one at the end whose answer shows that all were handled."""
        frames = Frames(chance, name_server=self._name_server)
        data = b"".join([frames.next() for _ in range(self.FRAMES)])
        line = chance.choice(self._targets)
        opaque = 1_000_000_000 + number
        mark = b'"opaque":%d' % opaque
        way = chance.randrange(40)
        if way == 0:
            line.exchange(data[: chance.randrange(len(data))], until=None)
            line.close(reset=True)
        elif way == 1:
            line.exchange(hostile.broken(chance, data), until=None, ends=True)
        elif way == 2:
            self._drip(chance, line, data)
        else:
            line.exchange(
                data + last_request(opaque),
                until=lambda tail: mark in tail,
                ends=frames.ends_stream,
            )
        return self.FRAMES

    def _drip(self, chance: Random, line: Line, data: bytes) -> None:
        """A byte for each connection that has begun something, and another one that begins."""
        fresh = Line(line._target)
        fresh.exchange(data[: chance.randrange(1, 40)], until=None)
        self._slow.append((fresh, data))
        if len(self._slow) > SLOW_MAX:
            self._slow.pop(0)[0].close(reset=chance.random() < 0.5)
        for slow, rest in self._slow:
            slow.exchange(rest[:1], until=None)


class CoordinatorAttacker:
    """Requests of etcd's API at the embedded coordinator, and what is no HTTP at all."""

    REQUESTS: ClassVar = 16

    def __init__(self, world: World) -> None:
        self._line = Line(world.coordinator)
        self._keys = GroupKeys(world.spec.name, FENCED)
        self._watches: list[Line] = []
        self._token = self._authenticated(world)

    def batch(self, chance: Random, number: int) -> int:
        """Pipelined requests; the last one ends the connection."""
        data = b"".join([self._request(chance) for _ in range(self.REQUESTS)])
        if chance.random() < 0.05:
            data = hostile.broken(chance, data)
        if chance.random() < 0.1:
            watch = Line(self._line._target)
            watch.exchange(self._watch(chance), until=None)
            self._watches.append(watch)
            if len(self._watches) > SLOW_MAX:
                self._watches.pop(0).close(reset=chance.random() < 0.5)
        if chance.random() < 0.05:
            self._line.exchange(data, until=None)
            self._line.close(reset=True)
            return self.REQUESTS
        mark = b'"version":"%d"' % number
        self._line.exchange(
            data + _http(b"GET", b"/version", b"") + _http(b"GET", b"/%d" % number, b""),
            until=lambda tail: b"Method Not Allowed" in tail or mark in tail,
            ends=True,
        )
        self._line.close()
        return self.REQUESTS

    def _authenticated(self, world: World) -> bytes:
        """A token: without one a request is refused before anybody looks at it."""
        password = embedded_password(world.spec.read_secret())
        body = authenticate_request(USER, password)
        self._line.exchange(
            _http(b"POST", b"/v3/auth/authenticate", body),
            until=lambda tail: tail.endswith(b"}"),
        )
        found = re.search(rb'"token":"([^"]+)"', self._line.tail)
        self._line.close()
        assert found is not None, "the coordinator takes its own password"
        return found[1]

    def _request(self, chance: Random) -> bytes:
        path, template = chance.choice(_PATHS)
        body = hostile.json_of(chance, self._filled(chance, template))
        if path in (b"/v3/kv/deleterange", b"/v3/kv/txn") and _reaches_far(body):
            path = b"/v3/kv/range"
        method = b"POST"
        if chance.random() < 0.05:
            method = chance.choice((b"GET", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"\xff", b""))
        if chance.random() < 0.05:
            path = chance.choice((b"/", b"/v3/nope", b"*", b"/%00", b"/v3/kv/range?x=\xff"))
        if path == b"/v3/watch":
            return b""
        return self._with_token(_http(method, path, body, chance), chance)

    def _with_token(self, request: bytes, chance: Random) -> bytes:
        token = self._token
        if chance.random() < 0.02:
            token = chance.choice((b"", b"\xff", b"Bearer " + token, token[:-1], b"x" * 5_000))
        return request.replace(b"\r\n", b"\r\nAuthorization: " + token + b"\r\n", 1)

    def _watch(self, chance: Random) -> bytes:
        create = {"key": _b64("/fuzz/"), "range_end": _b64("/fuzz0"), "start_revision": "1"}
        body = hostile.json_of(chance, {"create_request": create})
        return self._with_token(_http(b"POST", b"/v3/watch", body, chance), chance)

    def _filled(self, chance: Random, template: Any) -> Any:  # noqa: ANN401 - JSON
        """The template with keys in it, none of which is a record of a group that is needed."""
        if isinstance(template, dict):
            return {name: self._filled(chance, each) for name, each in template.items()}
        if isinstance(template, list):
            return [self._filled(chance, each) for each in template]
        if template == "KEY":
            return _b64(chance.choice(("/fuzz/a", "/fuzz/b", "/fuzz/\u4e2d", "/fuzz/" + "x" * 500)))
        if template == "END":
            return chance.choice(("", _b64("/fuzz/z"), _b64("/fuzz0")))
        if template == "NUMBER":
            return str(chance.choice((0, 1, 2, 7, hostile.integer(chance))))
        return template


_PUT: Final = {"key": "KEY", "value": "dmFsdWU=", "lease": "NUMBER"}
_RANGE: Final = {"key": "KEY", "range_end": "END"}
_COMPARE: Final = {"key": "KEY", "target": "MOD", "result": "EQUAL", "mod_revision": "NUMBER"}
_PATHS: Final[tuple[tuple[bytes, dict[str, Any]], ...]] = (
    (b"/v3/lease/grant", {"TTL": "2", "ID": "NUMBER"}),
    (b"/v3/lease/keepalive", {"ID": "NUMBER"}),
    (b"/v3/lease/revoke", {"ID": "NUMBER"}),
    (b"/v3/kv/range", _RANGE),
    (b"/v3/kv/put", _PUT),
    (b"/v3/kv/deleterange", _RANGE),
    (
        b"/v3/kv/txn",
        {
            "compare": [_COMPARE, {"key": "KEY", "target": "VALUE", "value": "dg=="}],
            "success": [{"request_put": _PUT}, {"request_range": _RANGE}],
            "failure": [{"request_delete_range": _RANGE}],
        },
    ),
    (b"/v3/kv/compaction", {"revision": "1"}),
    (b"/v3/maintenance/status", {}),
    (b"/v3/auth/authenticate", {"name": "a", "password": "b"}),
)


def _reaches_far(body: bytes) -> bool:
    """Whether a range may hold records of a group: deleting them is a real order."""
    try:
        rest = [msgspec.json.decode(body)]
    except (ValueError, RecursionError):
        return False
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            if each.get("range_end", "") not in ("", _b64("/fuzz/z"), _b64("/fuzz0")):
                return True
            rest += each.values()
        elif isinstance(each, list):
            rest += each
    return False


def _b64(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _http(method: bytes, path: bytes, body: bytes, chance: Random | None = None) -> bytes:
    headers = b"Host: x\r\nContent-Length: %d\r\n" % len(body)
    if chance is not None and chance.random() < 0.1:
        headers = chance.choice(
            (
                b"Host: x\r\nTransfer-Encoding: chunked\r\n",
                b"Content-Length: 5\r\n",
                b"Host: x\r\nContent-Length: 18446744073709551616\r\n",
                b"Host: x\r\nContent-Length: -1\r\n",
                b"Host: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n",
                b"Host: x\r\nConnection: close\r\nContent-Length: %d\r\n" % len(body),
                b"Host: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n" % len(body),
                b"Host: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\nContent-Length: %d\r\n"
                % len(body),
                b"Host: x\r\nA: \xff\xff\r\nContent-Length: %d\r\n" % len(body),
                b"Host: x\r\nContent-Length: %d\r\n" % len(body) + b"X: y\r\n" * 3_000,
            )
        )
        if b"chunked" in headers:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (chance.choice((len(body), 5, 2**70)), body)
    version = (
        b"HTTP/1.1"
        if chance is None or chance.random() < 0.98
        else chance.choice((b"HTTP/1.0", b"HTTP/2.0", b"x"))
    )
    return method + b" " + path + b" " + version + b"\r\n" + headers + b"\r\n" + body


class ControlAttacker:
    """Requests on the supervisor's control socket, none of which a cluster should carry out."""

    REQUESTS: ClassVar = 8

    def __init__(self, world: World) -> None:
        self._path = str(socket_path(world.spec.file))

    def batch(self, chance: Random, number: int) -> int:
        """One connection for each request, as the protocol has it."""
        for _ in range(self.REQUESTS):
            template = {
                # Not start: without a name it is a real order.
                "command": chance.choice(("status", "stop", "kill", "restart", "pause", "fly")),
                "node": chance.choice(("nobody", "", "coordinators", hostile.text(chance))),
            }
            data = hostile.json_of(chance, template)
            line = Line(self._path)
            way = chance.randrange(12)
            if way == 0:
                data = chance.choice(
                    (b"[" * 65_536, b"\xff" * 65_536, b"\n", b"", b'{"a":' * 10_000)
                )
            if way == 1:
                line.exchange(data, until=None)
            else:
                line.exchange(data + b"\n", until=lambda tail: tail.endswith(b"\n"), ends=way == 2)
            line.close()
        return self.REQUESTS


class ClassicLinkAttacker:
    """A slave of the classic group that reports whatever it likes."""

    REPORTS: ClassVar = 64

    def __init__(self, world: World) -> None:
        master = world.spec.node("c-0")
        self._line = Line(
            (world.address(master.name), 10_912), source=world.address(IMPOSTOR_CLASSIC)
        )
        self._stranger = Line((world.address(master.name), 10_912))

    def batch(self, chance: Random, number: int) -> int:
        """Reports of 8 bytes, most of them possible ones."""
        line = self._stranger if chance.random() < 0.05 else self._line
        begin = chance.choice((0, 0, 1, 100, 2**40, -1, -(2**63), 2**63 - 1))
        offsets = [begin] + [
            chance.choice((begin, 0, 1, -1, 100, hostile.integer(chance)))
            for _ in range(self.REPORTS - 1)
        ]
        data = b"".join([(offset & (1 << 64) - 1).to_bytes(8, "big") for offset in offsets])
        if chance.random() < 0.1:
            data = hostile.broken(chance, data)
        if chance.random() < 0.3:
            # Held for a moment, so that frames of the log are on their way to it.
            line.exchange(data[:8], until=bool)
        line.exchange(data, until=None)
        line.close(reset=chance.random() < 0.3)
        return self.REPORTS


class FencedLinkAttacker:
    """A follower of the fenced group: a stranger, or one that knows the secret and lies."""

    MESSAGES: ClassVar = 32

    def __init__(self, world: World) -> None:
        self._world = world
        self._master = world.fenced_master()
        self._key = key_of(SECRET, Purpose.LINK).hex()
        self._node = world.spec.node(self._master)
        self._file_size_bytes = world.spec.store.mapped_file_size_commit_log_bytes
        self._line = Line((world.address(self._master), 10_913), world.address(IMPOSTOR_FENCED))

    def batch(self, chance: Random, number: int) -> int:
        """A connection: bytes before the handshake, within it, or reports after it."""
        line = self._line
        line.close()
        match chance.randrange(4):
            case 0:
                data = b"".join([self._message(chance) for _ in range(self.MESSAGES)])
                line.exchange(data, until=None, ends=chance.random() < 0.5)
            case 1:
                self._hello(chance, change=True)
            case _:
                self._follow(chance)
        line.close(reset=chance.random() < 0.3)
        return self.MESSAGES

    def _message(self, chance: Random) -> bytes:
        payload = hostile.json_of(chance, chance.choice(_HANDSHAKE))
        size, crc = len(payload), raw_crc32(payload)
        match chance.randrange(10):
            case 0:
                size = chance.choice((0, 1, 4097, 2**31, 2**32 - 1)) & 0xFFFFFFFF
            case 1:
                crc ^= 1
            case _:
                pass
        return ENVELOPE.pack(size, crc) + payload

    def _hello(self, chance: Random, *, change: bool) -> tuple[Welcome, str] | None:
        """Introduce ourselves; return what the master says of its log."""
        line = self._line
        line.exchange(b"", until=lambda tail: len(tail) > ENVELOPE.size)
        found = _decoded(line.tail)
        if not isinstance(found, Challenge):
            return None
        cluster = self._world.spec.name
        hello = Hello(
            cluster=cluster,
            group=FENCED,
            node=IMPOSTOR_FENCED,
            incarnation=chance.choice(("i", "", hostile.text(chance)[:255])),
            epoch=chance.choice((0, 1)),
            file_size_bytes=self._file_size_bytes,
            nonce="n",
        )
        data = encode_message(proven(hello, self._key, found.nonce, "n"))
        if change:
            payload = json.loads(data[ENVELOPE.size :])
            data = self._enveloped(hostile.json_of(chance, payload))
        line.tail = b""
        line.exchange(data, until=lambda tail: _decoded(tail) is not None)
        welcome = _decoded(line.tail)
        return (welcome, found.nonce) if isinstance(welcome, Welcome) else None

    def _enveloped(self, payload: bytes) -> bytes:
        return ENVELOPE.pack(len(payload), raw_crc32(payload)) + payload

    def _follow(self, chance: Random) -> None:
        """Attach far from the log's end, so that nobody counts on us, and report."""
        answer = self._hello(chance, change=False)
        if answer is None:
            return
        welcome, nonce = answer
        at = max(welcome.log_start, min(welcome.confirm, welcome.log_end) // 2)
        wanted = chance.choice((at, at, at, welcome.log_start, hostile.integer(chance)))
        if 0 <= wanted < 2**63:
            # No bytes are compared: only what is in the log would have their checksum.
            nothing = hashlib.blake2b(digest_size=16).hexdigest()
            attach = Attach(offset=wanted, check_from=wanted, checksum=nothing)
            data = encode_message(proven(attach, self._key, nonce, "n"))
        else:
            data = self._enveloped(b'{"type":"ATTACH","offset":%d,"check_from":0}' % wanted)
        reports = []
        for _ in range(self.MESSAGES):
            written = chance.choice((at, at, 0, at // 2))
            flushed = chance.choice((written, 0))
            epoch = chance.choice((welcome.epoch, welcome.epoch, welcome.epoch, 0, 2**31 - 1))
            report = encode_report(Report(epoch, written, flushed))
            reports.append(hostile.broken(chance, report) if chance.random() < 0.05 else report)
        self._line.exchange(data, until=None)
        if chance.random() < 0.5:
            time.sleep(0.002)
        self._line.exchange(b"".join(reports), until=None)


_HANDSHAKE: Final[tuple[dict[str, Any], ...]] = tuple(
    json.loads(encode_message(message)[ENVELOPE.size :])
    for message in (
        Challenge(nonce="n"),
        Hello(
            cluster="DefaultCluster",
            group=FENCED,
            node=IMPOSTOR_FENCED,
            incarnation="i",
            epoch=1,
            file_size_bytes=16_777_216,
            nonce="n",
            proof="p",
        ),
        Welcome(epoch=1, node="f-1", incarnation="i", epochs=(), log_start=0, log_end=1, confirm=1),
        Refused(reason="no"),
        Attach(offset=0, check_from=0, checksum=""),
    )
)


def _decoded(data: bytes) -> object:
    try:
        found = decode_message(data, 1 << 20)
    except Exception:  # noqa: BLE001 - bytes of the log that follow, cut anywhere
        return None
    return None if found is None else found[0]


def link_name(group: str) -> str:
    """For people: which link belongs to which group."""
    return {CLASSIC: "ha", FENCED: "replication"}[group]
