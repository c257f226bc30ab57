"""Coordinators that are processes: etcd, found or fetched without being installed, and our own.

etcd is looked for in this order: what TANDEM_ETCD names, `etcd` of the PATH, the cache. If there is
none, `apt-get download` fills the cache from the Debian package; where that is not possible, the
tests are skipped and say why. So is `etcdctl`, without a name in the environment.
"""

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
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

from tandem.coordinator.client import EtcdClient
from tandem.coordinator.tokens import USER
from tests.support.patience import PATIENCE_SECONDS
from tests.tandem.coordinator.embedded import PASSWORD

FETCH_SECONDS_MAX: Final = 60.0


def cache_directory() -> Path:
    """Where a fetched etcd is kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tandem-mq" / "etcd"


def find_etcd() -> Path:
    """Return the program; skip the test if there is none and none can be fetched."""
    if named := os.environ.get("TANDEM_ETCD"):
        return Path(named)
    return _find("etcd", "etcd-server")


def find_etcdctl() -> Path:
    """Return etcd's command line; skip the test if there is none and none can be fetched."""
    return _find("etcdctl", "etcd-client")


def _find(program: str, package: str) -> Path:
    if installed := shutil.which(program):
        return Path(installed)
    cached = cache_directory() / program
    if not cached.exists():
        _fetch(package, cached)
    return cached


def _fetch(package: str, cached: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for command in (
                ["apt-get", "download", package],
                ["sh", "-c", f"dpkg -x {package}_*.deb unpacked"],
            ):
                subprocess.run(
                    command,
                    cwd=scratch,
                    check=True,
                    capture_output=True,
                    timeout=FETCH_SECONDS_MAX,
                )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"there is no {cached.name}, and none could be fetched: {error}")
        cached.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another worker may be fetching too.
        fresh = cached.with_name(f"{cached.name}.{os.getpid()}")
        shutil.copy2(Path(scratch) / "unpacked/usr/bin" / cached.name, fresh)
        fresh.rename(cached)


_PORTS: Final = range(12_000, 32_000)
"""Not those that Linux gives to outgoing connections: each test has many, at any moment, and a
client that dials such a port where nobody listens may even reach itself."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 at which nobody listened a moment ago; who ends may listen there again."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(_PORTS)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


class Server:
    """A coordinator, and its process while it has one."""

    def __init__(self, command: Sequence[str], endpoint: str, log: Path) -> None:
        self.endpoint = endpoint
        self.ca_file = ""
        """Who signed the certificate of an `https` endpoint."""
        self.user = self.password = ""
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
        context = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None
        async with httpcore.AsyncConnectionPool(ssl_context=context) as pool:
            answer = await pool.request("POST", self.endpoint + path, content=body)
        assert answer.status == 200, answer.content
        return answer.content

    async def wait_healthy(self) -> None:
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                try:
                    await self._ask_something()
                except (httpcore.NetworkError, httpcore.RemoteProtocolError, AssertionError):
                    if self._process is not None and self._process.poll() is not None:
                        pytest.fail(f"it has ended: {self._log.read_text()[-2000:]}")
                    await trio.sleep(0.02)
                else:
                    return

    async def _ask_something(self) -> None:
        if self.user:
            asked = {"name": self.user, "password": self.password}
            await self.post("/v3/auth/authenticate", json.dumps(asked).encode())
        else:
            await self.post("/v3/kv/range", b'{"key":"YQ=="}')

    def client(self) -> EtcdClient:
        """A client of it that may do everything, for the caller to close."""
        return EtcdClient([self.endpoint], user=self.user, password=self.password)


def embedded_process(directory: Path) -> Server:
    """An embedded coordinator in a process of its own."""
    (port,) = free_ports(1)
    program = Path(__file__).with_name("serve_embedded.py")
    command = [sys.executable, str(program), str(directory / "journal"), str(port)]
    server = Server(command, f"http://127.0.0.1:{port}", directory / "embedded.log")
    server.user, server.password = USER, PASSWORD
    return server


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
        self.data_directory = directory / name


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


async def find_leader(members: Sequence[Etcd]) -> Etcd:
    """Wait until a member says that it is the leader; all members must be up."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            for member in members:
                status = json.loads(await member.post("/v3/maintenance/status", b"{}"))
                if status.get("leader") == status["header"]["member_id"]:
                    return member
            await trio.sleep(0.05)


async def add_user(etcd: Etcd, user: str, password: str, prefix: str) -> None:
    """Make a user that may read and write what begins with `prefix`, and nothing else."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    key, range_end = (base64.b64encode(text.encode()).decode() for text in (prefix, end))
    permission = {"permType": "READWRITE", "key": key, "range_end": range_end}
    for path, request in (
        ("role/add", {"name": user}),
        ("role/grant", {"name": user, "perm": permission}),
        ("user/add", {"name": user, "password": password}),
        ("user/grant", {"user": user, "role": user}),
    ):
        await etcd.post(f"/v3/auth/{path}", json.dumps(request).encode())


async def protect(etcd: Etcd, user: str, password: str) -> None:
    """Make a user that may do everything; nothing is done without a user from here on."""
    for path, request in (
        ("user/add", {"name": user, "password": password}),
        ("user/grant", {"user": user, "role": "root"}),
        ("enable", {}),
    ):
        await etcd.post(f"/v3/auth/{path}", json.dumps(request).encode())


def make_certificates(directory: Path) -> tuple[Path, Path, Path]:
    """A CA of our own, and certificates of a server and of a node signed by it."""
    directory.mkdir(exist_ok=True)
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    ca, server, node = (directory / name for name in ("ca", "server", "node"))
    extensions = directory / "extensions"
    extensions.write_text(
        "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"
        "authorityKeyIdentifier=keyid\n"
    )
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    _openssl(
        *["req", "-x509", *key, "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-days", "3650"],
        *["-subj", "/CN=tests", "-addext", "keyUsage=critical,keyCertSign,cRLSign"],
    )
    for name in (server, node):
        _openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=x")
        _openssl(
            *["x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key"],
            *["-CAcreateserial", "-out", f"{name}.crt", "-days", "3650", "-extfile", extensions],
        )
    return ca, server, node


def _openssl(*arguments: object) -> None:
    subprocess.run(
        ["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=PATIENCE_SECONDS
    )
