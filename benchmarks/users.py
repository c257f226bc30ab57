"""What does asking for users cost a node? CPU of the node a message, signed and not, in turns.

    python benchmarks/users.py [--seconds 1] [--rounds 7]

Two nodes run beside each other: one asks nobody, one is `authorized`. A load of ready-made frames
over one connection takes turns between them; those for the second are signed as RocketMQ's clients
sign them, by a user with a right to the topic. Bodies are 1 KB.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

from benchmarks.pipelined import answer_load, ask, cpu_of, send_frames
from benchmarks.tls import LOADS, TOPIC, idle_share
from tandem.cluster_file.secret_file import read_secret
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand, encode_frame, text_fields
from tandem.wire.request_code import RequestCode
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, operator_secret_key

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

CLUSTER = """
cluster: {{name: BenchCluster, data_directory: data}}
store: {{mapped_file_size_commit_log_bytes: 1073741824}}
security: {{clients: {clients}}}
groups: {{broker-a: {{kind: classic, broker_role: ASYNC_MASTER}}}}
nodes:
  - {{name: broker-a-0, group: broker-a, broker_id: 0, address: {address}}}
"""

USER, SECRET = "bench", "a secret of the bench"


@contextlib.contextmanager
def running(clients: str, address: str) -> Iterator[tuple[int, Path]]:
    """Run a node; give its process id and its data directory."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        config = Path(name) / "cluster.yaml"
        config.write_text(CLUSTER.format(clients=clients, address=address))
        command = [sys.executable, "-P", "-m", "node", "--config", str(config)]
        node = subprocess.Popen(
            [*command, "--name", "broker-a-0", "--supervised"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert node.stdout is not None
        if not node.stdout.readline().startswith(b"READY"):
            sys.exit("the node did not start")
        try:
            yield node.pid, Path(name) / "data"
        finally:
            node.kill()
            node.wait()


def make_user(address: str, data: Path) -> None:
    """Make the user, who may write to the topic, and create it."""
    operator = (OPERATOR_ACCESS_KEY, operator_secret_key(read_secret(data / "secret")))
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
        ask((address, 10911), encode_frame(RemotingCommand(code, 1, ext=signed, body=body)))


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
        running("open", "127.31.0.3") as (open_pid, _),
        running("authorized", "127.31.0.4") as (users_pid, data),
    ):
        make_user("127.31.0.4", data)
        sides = {"open": ("127.31.0.3", open_pid), "users": ("127.31.0.4", users_pid)}
        idle = {side: idle_share(pid) for side, (_, pid) in sides.items()}
        for what, (depth, batch) in LOADS.items():
            plain = send_frames(TOPIC, depth, wait=False, batch=batch)
            frames = {"open": plain, "users": signed(plain)}
            found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
            for number in range(options.rounds):
                for side in [*sides][:: 1 if number % 2 else -1]:
                    address, pid = sides[side]
                    load = partial(answer_load, messages_per_frame=batch)
                    before, begun = cpu_of({"node": pid}, ())["node"], time.monotonic()
                    done = load((address, 10911), frames[side], depth, options.seconds)
                    used = cpu_of({"node": pid}, ())["node"] - before
                    used -= idle[side] * (time.monotonic() - begun)
                    found[side].append(
                        (done.messages / done.seconds, used / done.messages_in_all * 1e6)
                    )
            report(what, found)


def report(what: str, found: dict[str, list[tuple[float, float]]]) -> None:
    """Print a line."""
    pairs = list(zip(found["users"], found["open"], strict=True))
    rate = statistics.median(users[0] / free[0] for users, free in pairs)
    cpu = statistics.median(users[1] / free[1] for users, free in pairs)
    used = {side: statistics.median(cpu for _, cpu in rounds) for side, rounds in found.items()}
    print(
        f"{what:<28} CPU {used['open']:6.1f} us open, {used['users']:6.1f} us authorized,"
        f" ratio {cpu:5.2f}; rate {rate:5.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
