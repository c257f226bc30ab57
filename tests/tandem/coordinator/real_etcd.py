"""Coordinators that are processes: etcd, found or fetched without being installed, and our own.

etcd is looked for in this order: what TANDEM_ETCD names, `etcd` of the PATH, the cache. If there is
none, `apt-get download` fills the cache from the Debian package; where that is not possible, the
tests are skipped and say why.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpcore
import pytest
import trio

START_SECONDS_MAX: Final = 20.0
FETCH_SECONDS_MAX: Final = 60.0


def cache_directory() -> Path:
    """Where a fetched etcd is kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tandem-mq" / "etcd"


def find_etcd() -> Path:
    """Return the program; skip the test if there is none and none can be fetched."""
    if named := os.environ.get("TANDEM_ETCD"):
        return Path(named)
    if installed := shutil.which("etcd"):
        return Path(installed)
    cached = cache_directory() / "etcd"
    if not cached.exists():
        _fetch(cached)
    return cached


def _fetch(cached: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for command in (
                ["apt-get", "download", "etcd-server"],
                ["sh", "-c", "dpkg -x etcd-server_*.deb unpacked"],
            ):
                subprocess.run(
                    command,
                    cwd=scratch,
                    check=True,
                    capture_output=True,
                    timeout=FETCH_SECONDS_MAX,
                )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"there is no etcd, and none could be fetched: {error}; set TANDEM_ETCD")
        cached.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another worker may be fetching too.
        fresh = cached.with_name(f"etcd.{os.getpid()}")
        shutil.copy2(Path(scratch) / "unpacked/usr/bin/etcd", fresh)
        fresh.rename(cached)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Server:
    """A coordinator, and its process while it has one."""

    def __init__(self, command: Sequence[str], endpoint: str, log: Path) -> None:
        self.endpoint = endpoint
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start the process; it needs a moment until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it as a crash would."""
        self.send_signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        self._process = None

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def post(self, path: str, body: bytes) -> bytes:
        """One request, past the client that is tested."""
        async with httpcore.AsyncConnectionPool() as pool:
            answer = await pool.request("POST", self.endpoint + path, content=body)
        assert answer.status == 200, answer.content
        return answer.content

    async def wait_healthy(self) -> None:
        with trio.fail_after(START_SECONDS_MAX):
            while True:
                try:
                    await self.post("/v3/kv/range", b'{"key":"YQ=="}')
                except (httpcore.NetworkError, httpcore.RemoteProtocolError, AssertionError):
                    await trio.sleep(0.02)
                else:
                    return


def embedded_process(directory: Path) -> Server:
    """An embedded coordinator in a process of its own."""
    (port,) = free_ports(1)
    program = Path(__file__).with_name("serve_embedded.py")
    command = [sys.executable, str(program), str(directory / "journal"), str(port)]
    return Server(command, f"http://127.0.0.1:{port}", directory / "embedded.log")


class Etcd(Server):
    """One member of an etcd cluster."""

    def __init__(
        self,
        name: str,
        directory: Path,
        port: int,
        peers: dict[str, int],
        scheme: str,
        arguments: Sequence[str],
    ) -> None:
        endpoint = f"{scheme}://127.0.0.1:{port}"
        own = f"http://127.0.0.1:{peers[name]}"
        cluster = ",".join(f"{peer}=http://127.0.0.1:{at}" for peer, at in peers.items())
        command = [
            str(find_etcd()),
            f"--name={name}",
            f"--data-dir={directory / name}",
            f"--listen-client-urls={endpoint}",
            f"--advertise-client-urls={endpoint}",
            f"--listen-peer-urls={own}",
            f"--initial-advertise-peer-urls={own}",
            f"--initial-cluster={cluster}",
            *arguments,
        ]
        super().__init__(command, endpoint, directory / f"{name}.log")


def start_etcd(
    directory: Path,
    members_count: int = 1,
    *,
    scheme: str = "http",
    arguments: Sequence[str] = (),
) -> list[Etcd]:
    """Start a cluster of etcd; its members answer a little later. End it with `stop_etcd`."""
    ports = free_ports(2 * members_count)
    peers = {f"etcd-{index}": ports[members_count + index] for index in range(members_count)}
    members = [
        Etcd(name, directory, port, peers, scheme, arguments)
        for name, port in zip(peers, ports[:members_count], strict=True)
    ]
    for member in members:
        member.start()
    return members


def stop_etcd(members: Sequence[Server]) -> None:
    """End what is still running."""
    for member in members:
        if member.is_running:
            member.kill()


@contextmanager
def running_etcd(
    directory: Path,
    members_count: int = 1,
    *,
    scheme: str = "http",
    arguments: Sequence[str] = (),
) -> Iterator[list[Etcd]]:
    """A cluster of etcd that lives as long as the block."""
    members = start_etcd(directory, members_count, scheme=scheme, arguments=arguments)
    try:
        yield members
    finally:
        stop_etcd(members)
