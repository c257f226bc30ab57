"""What does asking for users cost a node? CPU of the node a message, signed and not, in turns.

    python benchmarks/users.py [--seconds 1] [--rounds 7]

Two nodes run beside each other: one asks nobody, one is `authorized`. A load of ready-made frames
over one connection takes turns between them; those for the second are signed as RocketMQ's clients
sign them, by a user with a right to the topic. Bodies are 1 KB.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

from benchmarks.paired_nodes import PORT, TOPIC, Side, compare, running
from benchmarks.pipelined import ask
from tandem.cluster_file.secret_file import read_secret
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand, encode_frame, text_fields
from tandem.wire.request_code import RequestCode
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, operator_secret_key

USER, SECRET = "bench", "a secret of the bench"
OPEN, AUTHORIZED = "127.31.0.3", "127.31.0.4"


def make_user(address: str, directory: Path) -> None:
    """Make the user, who may write to the topic, and create it."""
    operator = (
        OPERATOR_ACCESS_KEY,
        operator_secret_key(read_secret(directory / "data" / "secret")),
    )
    entry = {"resource": f"Topic:{TOPIC}", "actions": ["Pub", "Create"], "decision": "Allow"}
    orders = (
        (RequestCode.AUTH_CREATE_USER, {"username": USER}, {"password": SECRET}),
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, CPython {sys.version.split()[0]}, medians of the rounds")
    with (
        running("security: {clients: open}", OPEN) as (open_pid, _),
        running("security: {clients: authorized}", AUTHORIZED) as (users_pid, directory),
    ):
        make_user(AUTHORIZED, directory)
        compare(
            Side("open", OPEN, open_pid),
            Side("authorized", AUTHORIZED, users_pid, signed),
            seconds=options.seconds,
            rounds=options.rounds,
        )


if __name__ == "__main__":
    main()
