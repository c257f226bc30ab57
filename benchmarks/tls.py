"""What does TLS cost a node? CPU of the node a message, with TLS and in clear, in turns.

    python benchmarks/tls.py [--seconds 1] [--rounds 7]

Two nodes run beside each other, one in clear, one with TLS (1.3, AES-256-GCM, a P-256 certificate).
A load of ready-made frames over one connection takes turns between them. What it sends at a time is
encrypted at a time, in records of 16 KB, in the process of the load, which is not counted. What a
node takes while it idles is not counted either: the load that encrypts is slower, and fewer
messages would share it. Bodies are 1 KB.
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
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.pipelined import answer_load, cpu_of, send_frames
from tandem.client.tls import TLSSocket
from tandem.cluster.certificates import make_certificates
from tandem.cluster_file.load import load_config
from tandem.tls_files import TLSFiles

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator


ROOT = Path(__file__).resolve().parent.parent
TOPIC = "Bench"

CLUSTER = """
cluster: {{name: Bench, data_directory: data}}
store: {{mapped_file_size_commit_log_bytes: 1073741824}}
tls: {{mode: {mode}}}
groups: {{broker-a: {{kind: classic, broker_role: ASYNC_MASTER}}}}
nodes:
  - {{name: broker-a-0, group: broker-a, broker_id: 0, address: {address}}}
"""

IDLE_SECONDS = 4.0

LOADS = {
    "1 in flight": (1, 1),
    "16 in flight": (16, 1),
    "64 in flight": (64, 1),
    "256 in flight": (256, 1),
    "batches of 64, 8 in flight": (8, 64),
}


@contextlib.contextmanager
def running(mode: str, address: str) -> Iterator[tuple[int, Path]]:
    """Run a node; give its process id and its directory."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        config = Path(name) / "cluster.yaml"
        config.write_text(CLUSTER.format(mode=mode, address=address))
        if mode != "disabled":
            cluster, directory = load_config(config), Path(name) / "tls"
            make_certificates(cluster, directory, now=datetime.now(UTC))
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
            yield node.pid, Path(name)
        finally:
            node.kill()
            node.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, CPython {sys.version.split()[0]}, medians of the rounds")
    with (
        running("disabled", "127.31.0.1") as (clear_pid, _),
        running("enforcing", "127.31.0.2") as (
            tls_pid,
            directory,
        ),
    ):
        context = TLSFiles(str(directory / "tls/ca.pem")).client_context()

        def secure(stream: socket.socket) -> TLSSocket:
            return TLSSocket.open(stream, context, "127.31.0.2")

        sides = {"clear": ("127.31.0.1", clear_pid, None), "tls": ("127.31.0.2", tls_pid, secure)}
        idle = {side: idle_share(pid) for side, (_, pid, _) in sides.items()}
        for what, (depth, batch) in LOADS.items():
            frames = send_frames(TOPIC, depth, wait=False, batch=batch)
            found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
            for number in range(options.rounds):
                for side in [*sides][:: 1 if number % 2 else -1]:
                    address, pid, wrap = sides[side]
                    load = partial(answer_load, messages_per_frame=batch, secure=wrap)
                    before, begun = cpu_of({"node": pid}, ())["node"], time.monotonic()
                    done = load((address, 10911), frames, depth, options.seconds)
                    used = cpu_of({"node": pid}, ())["node"] - before
                    used -= idle[side] * (time.monotonic() - begun)
                    found[side].append(
                        (done.messages / done.seconds, used / done.messages_in_all * 1e6)
                    )
            report(what, found)


def idle_share(pid: int) -> float:
    """Return what of a core a node takes without a load."""
    before = cpu_of({"node": pid}, ())["node"]
    time.sleep(IDLE_SECONDS)  # noqa: TID251 - plain code
    return (cpu_of({"node": pid}, ())["node"] - before) / IDLE_SECONDS


def report(what: str, found: dict[str, list[tuple[float, float]]]) -> None:
    """Print a line."""
    pairs = list(zip(found["tls"], found["clear"], strict=True))
    rate = statistics.median(tls[0] / clear[0] for tls, clear in pairs)
    cpu = statistics.median(tls[1] / clear[1] for tls, clear in pairs)
    used = {side: statistics.median(cpu for _, cpu in rounds) for side, rounds in found.items()}
    print(
        f"{what:<28} CPU {used['clear']:6.1f} us in clear, {used['tls']:6.1f} us with TLS,"
        f" ratio {cpu:5.2f}; rate {rate:5.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
