"""RocketMQ's proxy in a process of its own, before whatever serves."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from tests.compat.programs import classpath, java_command
from tests.compat.targets import CLUSTER
from tests.compat.users import Keys

START_SECONDS_MAX: Final = 400.0
POLL_SECONDS: Final = 0.1
ADDRESS: Final = "127.0.0.1"


class Proxy(msgspec.Struct, frozen=True):
    """Where a proxy listens, and the file with what it prints."""

    remoting: str
    grpc: str
    said: Path


@contextmanager
def running_proxy(
    directory: Path,
    name_servers: str,
    settings: Mapping[str, object] = MappingProxyType({}),
    keys: Keys | None = None,
) -> Iterator["RunningProxy"]:
    """Have a proxy in CLUSTER mode up while the block runs; it has nothing but name servers.

    `settings` are those of its ProxyConfig; with `keys` it signs, if these say so: with the inner
    credentials, and with `conf/tools.yml` only if there are none (DefaultMessagingProcessor).

    Raises:
        NotToBeHadError: It cannot be fetched.
        TimeoutError: It does not start.
    """
    jars = classpath("pom.xml", "proxy")
    home = directory / "proxy"
    home.mkdir()
    remoting, grpc = _free_ports()
    config = home / "given.json"
    given = {
        "rocketMQClusterName": CLUSTER,
        "proxyMode": "CLUSTER",
        "namesrvAddr": name_servers,
        "localServeAddr": ADDRESS,
        "remotingListenPort": remoting,
        "grpcServerPort": grpc,
    }
    inner = {}
    if keys is not None:
        words = {"accessKey": keys.access_key, "secretKey": keys.secret_key}
        inner["innerClientAuthenticationCredentials"] = json.dumps(words)
    config.write_text(json.dumps({**given, **settings, **inner}))
    command = [*java_command(jars, home), "org.apache.rocketmq.proxy.ProxyStartup", "-pc"]
    proxy = RunningProxy(remoting, grpc, home, [*command, str(config)])
    try:
        proxy.start()
        yield proxy
    finally:
        proxy.kill()


class RunningProxy:
    """One that may be killed, and started again at the same ports."""

    def __init__(self, remoting_port: int, grpc_port: int, home: Path, command: list[str]) -> None:
        self.remoting = f"{ADDRESS}:{remoting_port}"
        self.grpc = f"{ADDRESS}:{grpc_port}"
        self.said = home / "said"
        self._home = home
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def addresses(self) -> Proxy:
        """Where it listens."""
        return Proxy(self.remoting, self.grpc, self.said)

    def start(self) -> None:
        """Start it; return when it serves."""
        with self.said.open("w") as said:
            self._process = subprocess.Popen(
                self._command,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                env={**os.environ, "RMQ_PROXY_HOME": str(self._home)},
            )
        _wait_until_started(self._process, self.said)

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _wait_until_started(process: "subprocess.Popen[bytes]", said: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while "startup successfully" not in said.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError(f"the proxy does not start: {said.read_text()[-2000:]}")
        time.sleep(POLL_SECONDS)  # noqa: TID251 - waits for another process


def _free_ports() -> tuple[int, int]:
    # It listens on all addresses, and cannot say which port the kernel chose.
    with socket.socket() as one, socket.socket() as other:
        one.bind(("", 0))
        other.bind(("", 0))
        return one.getsockname()[1], other.getsockname()[1]
