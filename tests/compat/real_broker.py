"""RocketMQ 5.3.3's broker and name server with settings of one's own, killed and started again."""

import secrets
import subprocess
from pathlib import Path
from typing import Final, Self

from tests.compat.targets import BROKER_SETTINGS, QUIET, start_program
from tests.support.patience import PATIENCE_SECONDS

NAME_SERVER: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER: Final = "org.apache.rocketmq.broker.BrokerStartup"


class RealProgram:
    """One program of RocketMQ's in a directory of its own; a context manager that starts it."""

    def __init__(self, jars: str, home: Path, program: str, settings: dict[str, str]) -> None:
        self._jars = jars
        self._program = program
        self.home = home
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        (home / "conf").mkdir(parents=True)
        for name in ("namesrv", "broker"):
            (home / "conf" / f"logback_{name}.xml").write_text(QUIET)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._process = start_program(self._jars, self.home, self._program, self.settings)

    def stop(self) -> None:
        """In good order."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def name_server(jars: str, home: Path, address: str) -> RealProgram:
    settings = {
        "bindAddress": address,
        "listenPort": "9876",
        "rocketmqHome": str(home),
        "kvConfigPath": str(home / "kvConfig.json"),
        "configStorePath": str(home / "namesrv.properties"),
    }
    return RealProgram(jars, home, NAME_SERVER, settings)


def broker(jars: str, home: Path, address: str, servers: str, **settings: str) -> RealProgram:
    """One that registers at `servers`; `settings` are RocketMQ's."""
    own = {
        "namesrvAddr": servers,
        "listenPort": "10911",
        "bindAddress": address,
        "brokerIP1": address,
        "brokerIP2": address,
        # This port is taken on all addresses.
        "haListenPort": str(20_000 + secrets.randbelow(20_000)),
        "storePathRootDir": str(home / "store"),
        "storePathCommitLog": str(home / "store" / "commitlog"),
        "mappedFileSizeCommitLog": "16777216",
    }
    return RealProgram(jars, home, BROKER, BROKER_SETTINGS | own | settings)


def own_address() -> str:
    """A loopback address that nobody else uses."""
    return f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}.1"
