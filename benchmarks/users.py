"""What does asking for users cost a node? CPU of the node a message, signed and not, in turns.

    python benchmarks/users.py [--seconds 1] [--rounds 7] [--seals | --quota]

Two nodes run beside each other: one asks nobody, one is `authorized`. A load of frames over one
connection takes turns between them; those for the second are signed as RocketMQ's clients sign
them, by a user with a right to the topic. With `--seals` both are `authorized`, and those for the
second are sealed, as our own clients seal them. With `--quota` both are `authorized`, and at the
second one the user has all bounds there are, too wide to be met. Bodies are 1 KB.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import socket

import msgspec

from benchmarks.paired_nodes import PORT, TOPIC, Side, compare, running
from benchmarks.pipelined import ask
from tandem.cluster_file.secret_file import read_secret
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.frame_seal import FrameSeal, SignInHeader, connection_key
from tandem.wire.remoting_command import (
    ONEWAY_FLAG,
    RemotingCommand,
    SerializeType,
    encode_frame,
    encode_msgpack_request,
    text_fields,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.request_signature import ChallengeBody
from tandem.wire.route import decode_json_body
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, operator_secret_key

USER, SECRET = "bench", "a secret of the bench"
OPEN, AUTHORIZED = "127.31.0.3", "127.31.0.4"


WIDE = {
    "connectionsMax": 1_000,
    "requestsPerSecond": 1 << 30,
    "bytesPerSecond": 1 << 40,
    "bytesInFlightMax": 1 << 40,
}
"""Bounds that are looked at with each request, and never met."""


def make_user(address: str, directory: Path, quota: dict[str, int] | None = None) -> None:
    """Make the user, who may write to the topic, and create it."""
    operator = (
        OPERATOR_ACCESS_KEY,
        operator_secret_key(read_secret(directory / "data" / "secret")),
    )
    entry = {"resource": f"Topic:{TOPIC}", "actions": ["Pub", "Create"], "decision": "Allow"}
    orders = (
        (RequestCode.AUTH_CREATE_USER, {"username": USER}, {"password": SECRET, "quota": quota}),
        (
            RequestCode.AUTH_CREATE_ACL,
            {"subject": f"User:{USER}"},
            {"policies": [{"entries": [entry]}]},
        ),
    )
    for code, ext, said in orders:
        body = msgspec.json.encode(said)
        signed = with_acl_signature(*operator, ext, body)
        ask((address, PORT), encode_frame(RemotingCommand(code, 1, ext=signed, body=body)))


def signed(frames: list[bytes]) -> list[bytes]:
    """Return the same requests with the signature of the user."""
    buffer, found = FrameBuffer(), []
    buffer.receive_data(b"".join(frames))
    while (command := buffer.next_command()) is not None:
        ext = with_acl_signature(USER, SECRET, text_fields(command), command.body)
        found.append(encode_frame(msgspec.structs.replace(command, ext=ext)))
    return found


class SealedRing:
    """The same requests over and over, packed and sealed as they leave: no seal is good twice."""

    def __init__(self, stream: socket.socket, frames: list[bytes], address: str) -> None:
        stream.sendall(encode_frame(RemotingCommand(RequestCode.NODE_CHALLENGE, 0)))
        buffer = FrameBuffer()
        while (answer := buffer.next_command()) is None:
            buffer.receive_data(stream.recv(1 << 16))
        number = decode_json_body(answer.body, ChallengeBody).connection
        target = f"{address}:{PORT}"
        self._seal = FrameSeal(connection_key(SECRET, USER, number, target))
        self._opaque = self._place = 0
        header = SignInHeader(USER, target)
        stream.sendall(self._sealed(RequestCode.SIGN_IN, header, ONEWAY_FLAG))
        buffer.receive_data(b"".join(frames))
        self._requests: list[tuple[bytes, bytes]] = []
        while (command := buffer.next_command()) is not None:
            fields = command.decode_header(SendMessageRequestHeaderV2)
            frame = encode_msgpack_request(command.code, _FIRST_OPAQUE, fields, command.body)
            head, _, tail = frame.partition(_PACKED_OPAQUE)
            self._requests.append((head, tail))

    def _sealed(self, code: int, ext: SignInHeader, flag: int) -> bytes:
        self._opaque += 1
        command = RemotingCommand(
            code, self._opaque, flag, ext=ext, serialize_type=SerializeType.MSGPACK
        )
        return self._seal.sealed(encode_frame(command), self._opaque)

    def take(self, count: int) -> bytes:
        """Return the next `count` frames."""
        found = []
        self._opaque = max(self._opaque, _FIRST_OPAQUE)
        for _ in range(count):
            self._opaque += 1
            head, tail = self._requests[self._place]
            self._place = (self._place + 1) % len(self._requests)
            frame = b"".join((head, b"\xce", self._opaque.to_bytes(4, "big"), tail))
            found.append(self._seal.sealed(frame, self._opaque))
        return b"".join(found)


_FIRST_OPAQUE = 1 << 20
_PACKED_OPAQUE = b"\xce" + _FIRST_OPAQUE.to_bytes(4, "big")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seals", action="store_true", help="seals against RocketMQ's signatures")
    parser.add_argument("--quota", action="store_true", help="what bounds of the user cost")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, CPython {sys.version.split()[0]}, medians of the rounds")
    first = "authorized" if options.seals or options.quota else "open"
    with (
        running(f"security: {{clients: {first}}}", OPEN) as (first_pid, first_directory),
        running("security: {clients: authorized}", AUTHORIZED) as (users_pid, directory),
    ):
        make_user(AUTHORIZED, directory, WIDE if options.quota else None)
        plain = Side("open", OPEN, first_pid)
        dearer = Side("authorized", AUTHORIZED, users_pid, signed)
        if options.seals:
            make_user(OPEN, first_directory)
            plain = Side("RocketMQ's", OPEN, first_pid, signed)
            ring_of = partial(SealedRing, address=AUTHORIZED)
            dearer = Side("sealed", AUTHORIZED, users_pid, ring_of=ring_of)
        if options.quota:
            make_user(OPEN, first_directory)
            plain = Side("no bounds", OPEN, first_pid, signed)
            dearer = Side("bounds", AUTHORIZED, users_pid, signed)
        compare(plain, dearer, seconds=options.seconds, rounds=options.rounds)


if __name__ == "__main__":
    main()
