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
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import socket

from benchmarks.paired_nodes import Side, compare, running
from tandem.client.tls import TLSSocket
from tandem.cluster.certificates import make_certificates
from tandem.cluster_file.load import load_config
from tandem.tls_files import TLSFiles

CLEAR, SECURE = "127.31.0.1", "127.31.0.2"


def certify(config: Path) -> None:
    """Make the certificates of a cluster."""
    make_certificates(load_config(config), config.parent / "tls", now=datetime.now(UTC))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, CPython {sys.version.split()[0]}, medians of the rounds")
    with (
        running("tls: {mode: disabled}", CLEAR) as (clear_pid, _),
        running("tls: {mode: enforcing}", SECURE, certify) as (tls_pid, directory),
    ):
        context = TLSFiles(str(directory / "tls/ca.pem")).client_context()

        def secure(stream: socket.socket) -> TLSSocket:
            return TLSSocket.open(stream, context, SECURE)

        compare(
            Side("in clear", CLEAR, clear_pid),
            Side("with TLS", SECURE, tls_pid, secure=secure),
            seconds=options.seconds,
            rounds=options.rounds,
        )


if __name__ == "__main__":
    main()
