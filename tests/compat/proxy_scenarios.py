"""What applications do that know a proxy, or what is in its place: java/ProxyProbe.java."""

import subprocess
from pathlib import Path
from typing import Final

from tests.compat.programs import JAVA, java_command
from tests.compat.proxy import Proxy

PROBE_SECONDS_MAX: Final = 400

SERVED: Final = {
    *("remoting: send", "remoting: in order", "remoting: delay level", "remoting: transactions"),
    "remoting: a message of another type is refused",
    *("remoting: a push consumer", "remoting: a push consumer in order"),
    *("remoting: a pull consumer", "remoting: what fails comes back"),
    *("gRPC: send", "gRPC: in order", "gRPC: delay", "gRPC: transactions"),
    "gRPC: a message of another type is refused",
    *("gRPC: a simple consumer", "gRPC: a push consumer"),
}


def probe_command(jars: str, home: Path, *arguments: str) -> list[str]:
    home.mkdir()
    return [*java_command(jars, home), str(JAVA / "ProxyProbe.java"), *arguments]


def scenarios(jars: str, directory: Path, name_servers: str, proxy: Proxy) -> dict[str, str]:
    """Run all of them; return what became of each."""
    home = directory / "probe"
    command = probe_command(jars, home, "scenarios", name_servers, proxy.remoting, proxy.grpc)
    with (home / "errors").open("w") as errors:
        done = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=PROBE_SECONDS_MAX,
            cwd=home,
        )
    assert done.returncode == 0, (home / "errors").read_text()[-2000:]
    return dict(line.split("\t") for line in done.stdout.splitlines())
