"""Stands in for systemctl where no systemd runs: does what a unit says of how a service is run.

    systemctl start|stop|restart|kill|is-active UNIT...
    systemctl enable [--now] [--no-block] UNIT...
    systemctl daemon-reload

Of a unit it knows: User, UMask, WorkingDirectory, ExecStart, ExecStop, Type=notify, TimeoutStopSec,
LimitNOFILE, Restart. Units are in /etc/systemd/system, what runs is in /run/services, and what it
says goes to /var/log/UNIT.log. A service that ends by itself is started again by a process of ours,
as Restart says.
"""

import contextlib
import os
import pwd
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
RUN = Path("/run/services")
LOGS = Path("/var/log")


class Unit:
    """One service, an instance of a template or not."""

    def __init__(self, name: str) -> None:
        self.name = name.removesuffix(".service")
        template, at, instance = self.name.partition("@")
        text = (UNITS / f"{template}{at}.service").read_text().replace("\\\n", " ")
        self._lines = [
            line.replace("%i", instance).replace("%%", "%").partition("=")
            for line in text.splitlines()
            if "=" in line and not line.startswith("#")
        ]
        self.notify = RUN / f"{self.name}.notify"
        self.pid_file = RUN / f"{self.name}.pid"
        self.stopping = RUN / f"{self.name}.stopping"
        self.log = LOGS / f"{self.name}.log"

    def get(self, key: str, default: str = "") -> str:
        """The last value of a key."""
        found = [value.strip() for name, _, value in self._lines if name.strip() == key]
        return found[-1] if found else default

    @property
    def pid(self) -> int | None:
        """Of the main process, while it runs."""
        try:
            pid = int(self.pid_file.read_text())
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return None
        return None if state == "Z" else pid

    def become(self) -> None:
        """Be the user, and have the limits and the directory, of the unit; in a child."""
        limit = int(self.get("LimitNOFILE", "1024"))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), min(limit, hard)))
        os.umask(int(self.get("UMask", "0022"), 8))
        if name := self.get("User"):
            user = pwd.getpwnam(name)
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
        os.chdir(self.get("WorkingDirectory", "/"))

    def open(self, command: str, **more: str) -> "subprocess.Popen[bytes]":
        """Start a command line of the unit."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                shlex.split(command.lstrip("-")),
                preexec_fn=self.become,  # noqa: PLW1509 - there is one thread
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def keep(unit: Unit, ready: int) -> None:
    """Run a service, and again as its unit says; write to `ready` when it is up the first time."""
    prevent = {int(word) for word in unit.get("RestartPreventExitStatus").split()}
    while True:
        unit.notify.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
            news.bind(str(unit.notify))
            unit.notify.chmod(0o666)
            news.settimeout(0.2)
            process = unit.open(unit.get("ExecStart"), NOTIFY_SOCKET=str(unit.notify))
            unit.pid_file.write_text(str(process.pid))
            while process.poll() is None:
                with contextlib.suppress(TimeoutError):
                    if b"READY=1" in news.recv(4_096) and ready >= 0:
                        # Whoever has started it need not wait for that.
                        with contextlib.suppress(BrokenPipeError):
                            os.write(ready, b"ready")
                        os.close(ready)
                        ready = -1
        ended_well = process.returncode in (0, -signal.SIGTERM)
        if unit.stopping.exists() or ended_well or process.returncode in prevent:
            break
        if ready >= 0 and unit.get("Restart", "no") == "no":
            break
        time.sleep(float(unit.get("RestartSec", "0.1")))
        if unit.stopping.exists():
            break
    unit.pid_file.unlink(missing_ok=True)


def start(unit: Unit, *, wait: bool) -> int:
    """Start a service; wait until it says that it is ready, or has ended."""
    if unit.pid is not None:
        return 0
    RUN.mkdir(exist_ok=True)
    unit.stopping.unlink(missing_ok=True)
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(read)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        keep(unit, write)
        os._exit(0)
    os.close(write)
    if not wait or unit.get("Type") != "notify":
        return 0
    with os.fdopen(read, "rb") as news:
        if news.read():
            return 0
    sys.stderr.write(f"Job for {unit.name} failed; see {unit.log}:\n")
    sys.stderr.write("".join(unit.log.read_text(errors="replace").splitlines(keepends=True)[-5:]))
    return 1


def stop(unit: Unit) -> int:
    """Have a service end: ExecStop, SIGTERM, and SIGKILL after TimeoutStopSec."""
    if not unit.pid_file.exists():
        return 0
    unit.stopping.touch()
    seconds = float(unit.get("TimeoutStopSec", "90"))
    command = unit.get("ExecStop")
    if command and unit.pid is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            unit.open(command).wait(seconds)
    deadline = time.monotonic() + seconds
    if (pid := unit.pid) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while unit.pid_file.exists():
        if (pid := unit.pid) is not None and time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return 0


def do(verb: str, units: list[Unit], options: set[str]) -> int:
    """Do what a verb says; return the status."""
    is_now = "--now" in options
    if verb == "start" or (verb == "enable" and is_now):
        return max(start(unit, wait="--no-block" not in options) for unit in units)
    if verb == "stop" or (verb == "disable" and is_now):
        return max(map(stop, units))
    if verb == "restart":
        return max(stop(unit) or start(unit, wait=True) for unit in units)
    if verb == "kill":
        name = next((word[9:] for word in options if word.startswith("--signal=")), "SIGTERM")
        for pid in filter(None, [unit.pid for unit in units]):
            os.kill(pid, getattr(signal, name))
    if verb == "is-active":
        return 0 if all(unit.pid is not None for unit in units) else 3
    return 0 if verb in ("daemon-reload", "enable", "disable", "kill") else 1


def main() -> int:
    """Do what the command line says."""
    verb, *names = [word for word in sys.argv[1:] if not word.startswith("-")]
    options = {word for word in sys.argv[1:] if word.startswith("-")}
    return do(verb, [Unit(name) for name in names], options)


if __name__ == "__main__":
    sys.exit(main())
