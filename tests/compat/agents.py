"""Applications with RocketMQ's gRPC clients, one process a language, that do what they are asked.

Each program takes the same orders (`python/agent.py`), so a scenario is written once and run with
every client.
"""

import contextlib
import itertools
import json
import os
import queue
import secrets
import shutil
import subprocess
import sys
import threading  # noqa: TID251 - reads pipes of other processes
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, get_args

from tests.compat.programs import JAVA, classpath, fetch, java_command, need

Language = Literal["python", "java", "node", "go", "rust"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)

LIBRARIES: Final[Mapping[Language, str]] = {
    "python": "rocketmq-python-client 5.1.2",
    "java": "rocketmq-client-java 5.2.0",
    "node": "rocketmq-client-nodejs 1.0.8",
    "go": "golang/v5 5.1.4",
    "rust": "crate rocketmq 5.0.0",
}
LACKS: Final[Mapping[Language, Mapping[str, str]]] = {
    "rust": {
        "push": "push consumers",
        "change": "a change of the invisible time",
        "recall": "recalls",
    },
}
"""Orders that a library has nothing for, and what it would need."""

PYTHON_PACKAGE: Final = "rocketmq-python-client==5.1.2"
PROGRAMS: Final = Path(__file__).parent
ORDER_SECONDS_MAX: Final = 120.0
READY_SECONDS_MAX: Final = 120.0
COMPILE_SECONDS_MAX: Final = 1_800.0

Answer = dict[str, Any]


class OrderError(Exception):
    """What an application's library raised, in its words."""


class NotInLibraryError(Exception):
    """A library has nothing for an order. Says what it would need."""


class Agent:
    """One process with one client library; `call` may be used by many threads."""

    def __init__(
        self, language: Language, command: list[str], home: Path, env: dict[str, str]
    ) -> None:
        self.language = language
        self.home = home
        self._log = (home / "log").open("w")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=home,
            env={**os.environ, **env},
        )
        self._numbers = itertools.count(1)
        self._writing = threading.Lock()
        self._answers: dict[int, queue.SimpleQueue[Answer]] = {}
        self._ready = threading.Event()
        self.events: list[Answer] = []
        threading.Thread(target=self._read, daemon=True).start()
        if not self._ready.wait(READY_SECONDS_MAX):
            self.kill()
            raise TimeoutError(f"the application in {language} is not there: {self.log()}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            try:
                line = json.loads(text)
            except ValueError:
                continue  # what a library prints
            if "ready" in line:
                self._ready.set()
            elif "event" in line:
                self.events.append(line)
            else:
                self._answers[line["id"]].put(line)

    @property
    def lacks(self) -> Mapping[str, str]:
        """The orders that this library has nothing for."""
        return LACKS.get(self.language, {})

    def need(self, op: str) -> None:
        """Check that the library can do something.

        Raises:
            NotInLibraryError: It cannot.
        """
        if op in self.lacks:
            raise NotInLibraryError(self.lacks[op])

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")[-2000:]

    def call(self, op: str, seconds_max: float = ORDER_SECONDS_MAX, **words: Any) -> Answer:  # noqa: ANN401
        """Have something done; return what came of it.

        Raises:
            OrderError: The library raised this.
            NotInLibraryError: The library cannot do it.
            TimeoutError: It is not done.
        """
        self.need(op)
        number = next(self._numbers)
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._answers[number] = answers
        assert self._process.stdin is not None
        with self._writing:
            self._process.stdin.write(json.dumps({"id": number, "op": op, **words}) + "\n")
            self._process.stdin.flush()
        try:
            answer = answers.get(timeout=seconds_max)
        except queue.Empty:
            raise TimeoutError(f"{op} is not done in {seconds_max:g} s") from None
        if "error" in answer:
            raise OrderError(answer["error"])
        return answer

    def seen(self, name: str, event: str = "message") -> list[Answer]:
        """What a listener, or a checker, has been given so far."""
        return [
            each for each in list(self.events) if (each["event"], each["name"]) == (event, name)
        ]

    def kill(self) -> None:
        """As `kill -9` does."""
        self._process.kill()
        self._process.wait()
        self._log.close()


@contextmanager
def running_agent(
    language: Language, home: Path, *, tls: bool = False, ca_file: Path | None = None
) -> Iterator[Agent]:
    """Have an application up while the block runs.

    `ca_file`: what those clients believe that look at certificates.

    Raises:
        NotToBeHadError: Its library cannot be fetched.
        TimeoutError: It does not start.
    """
    home.mkdir(parents=True)
    command, environment = _COMMANDS[language](home)
    # Their logs are in the home directory.
    environment |= {"HOME": str(home), "rocketmq.client.logRoot": str(home)}
    if ca_file is not None:
        environment |= {
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(ca_file),
            "NODE_EXTRA_CA_CERTS": str(ca_file),
            "SSL_CERT_FILE": str(ca_file),
        }
    agent = Agent(language, [*command, json.dumps({"tls": tls})], home, environment)
    try:
        yield agent
    finally:
        agent.kill()


def _python(home: Path) -> tuple[list[str], dict[str, str]]:
    library = python_library()
    return [sys.executable, str(PROGRAMS / "python" / "agent.py")], {"PYTHONPATH": library}


def _java(home: Path) -> tuple[list[str], dict[str, str]]:
    jars = java_classes()
    return [*java_command(jars, home), "GrpcAgent"], {}


def _node(home: Path) -> tuple[list[str], dict[str, str]]:
    return ["node", str(node_directory() / "agent.js")], {}


def _go(home: Path) -> tuple[list[str], dict[str, str]]:
    return [str(go_program())], {}


def _rust(home: Path) -> tuple[list[str], dict[str, str]]:
    return [str(rust_program())], {}


_COMMANDS: Final = {"python": _python, "java": _java, "node": _node, "go": _go, "rust": _rust}

_made: dict[str, Path] = {}
_making = threading.Lock()


def _once(name: str, make: Any) -> Path:  # noqa: ANN401
    """Where something is that is made once a run, and deleted with it."""
    import atexit  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    with _making:
        if name not in _made:
            directory = Path(tempfile.mkdtemp(prefix=f"compat-{name}-"))
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            make(directory)
            _made[name] = directory
        return _made[name]


def python_library() -> str:
    """Where `rocketmq-python-client` is, apart from what this process imports."""

    def make(directory: Path) -> None:
        need("pip")
        wheels = ["pip", "install", "-q", "--target", str(directory), PYTHON_PACKAGE]
        fetch(wheels, cwd=directory)

    return str(_once("python", make))


def java_classes() -> str:
    """The class path of the application with rocketmq-client-java."""
    jars = classpath("pom.xml", "grpc")

    def make(directory: Path) -> None:
        source = str(JAVA / "grpc" / "GrpcAgent.java")
        fetch(["javac", "-nowarn", "-d", str(directory), "-cp", jars, source], cwd=directory)

    return f"{_once('java', make)}:{jars}"


def node_directory() -> Path:
    """Where the application with rocketmq-client-nodejs is, and its library."""

    def make(directory: Path) -> None:
        need("node", "npm")
        shutil.copytree(PROGRAMS / "node" / "grpc", directory, dirs_exist_ok=True)
        fetch(["npm", "ci", "--no-audit", "--no-fund"], cwd=directory)

    return _once("node", make)


def go_program() -> Path:
    """The application with golang/v5, compiled."""

    def make(directory: Path) -> None:
        need("go")
        shutil.copytree(PROGRAMS / "go" / "grpc", directory, dirs_exist_ok=True)
        fetch(["go", "build", "-o", "agent", "."], cwd=directory)

    return _once("go", make) / "agent"


def rust_program() -> Path:
    """The application with the crate rocketmq, compiled, with 200 others: that takes minutes.

    `CARGO_TARGET_DIR` names a directory in which what was compiled is kept.
    """

    def make(directory: Path) -> None:
        need("cargo")
        shutil.copytree(PROGRAMS / "rust" / "grpc", directory, dirs_exist_ok=True)
        build = ["cargo", "build", "--locked", "--quiet"]
        fetch(build, cwd=directory, seconds_max=COMPILE_SECONDS_MAX)

    directory = _once("rust", make)
    target = Path(os.environ.get("CARGO_TARGET_DIR", directory / "target"))
    return target / "debug" / "agent"


def unique(prefix: str) -> str:
    """A name that nothing else has."""
    return f"{prefix}-{secrets.token_hex(4)}"


def eventually(holds: Any, seconds_max: float, what: str) -> None:  # noqa: ANN401
    """Wait until something holds.

    Raises:
        AssertionError: It does not.
    """
    deadline = time.monotonic() + seconds_max
    while not holds():
        assert time.monotonic() < deadline, f"not in {seconds_max:g} s: {what}"
        time.sleep(0.05)  # noqa: TID251 - waits for other processes


def refusal(agent: Agent, op: str, **words: Any) -> str:  # noqa: ANN401
    """What the library says when it refuses; empty if it does not."""
    with contextlib.suppress(TimeoutError):
        try:
            agent.call(op, **words)
        except OrderError as error:
            return str(error)
    return ""
