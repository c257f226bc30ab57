"""The table of RocketMQ's gRPC clients: `python -P -m tests.compat.grpc_table --help` says how.

Each scenario is run with each client, at a proxy 5.3.3 before RocketMQ 5.3.3 and at nodes of a
fenced group without one. What came of it is kept in `grpc-clients.json`, from which the page is
written.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, Final

from tandem.client import ClientError
from tests.compat.agents import (
    LANGUAGES,
    Agent,
    Language,
    NotInLibraryError,
    OrderError,
    running_agent,
)
from tests.compat.grpc_codes import codes_at, expected_at
from tests.compat.grpc_failures import killed_while_it_holds
from tests.compat.grpc_guarded import (
    TLS_OTHER_CA,
    TLS_SCENARIOS,
    USERS_SCENARIOS,
    GuardedScene,
    other_ca,
    running_place_with_users,
    running_tls_place,
)
from tests.compat.grpc_kills import run_kills
from tests.compat.grpc_places import PlaceName, running_place
from tests.compat.grpc_results import Result, load, record, with_section
from tests.compat.grpc_scenarios import MANY, SCENARIOS
from tests.compat.grpc_scene import Scene
from tests.compat.programs import NotToBeHadError

PARTS: Final = ("plain", "codes", "many", "holder", "tls", "users", "kills")
CODES: Final = "41 requests that no client would make: their codes"
HOLDER: Final = "push: killed with 32 messages, another gets them within a minute"
AT_ONCE: Final = 6


def main() -> int:
    """Run what is asked for; return 1 if something fails here that RocketMQ passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.grpc_table", description=__doc__)
    parser.add_argument("--place", default="real,fenced", help="some of real,classic,fenced")
    parser.add_argument("--client", default=",".join(LANGUAGES))
    parser.add_argument("--part", default=",".join(PARTS), help="some of the default")
    parser.add_argument("--name", default="", help="run scenarios with this in their name")
    parser.add_argument("--keep", type=Path, help="a directory for stores and logs, kept")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="how many scenarios")
    parser.add_argument("--record", action="store_true", help="keep the results in the tree")
    parser.add_argument("--markdown", type=Path, help="write the section of this page anew")
    options = parser.parse_args()
    clients: list[Any] = options.client.split(",")
    results: list[Result] = []
    with nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory() as directory:
        for place in options.place.split(","):
            for part in options.part.split(","):
                home = Path(directory) / f"{place}-{part}"
                home.mkdir(parents=True)
                runner = Runner(place, clients, home, options.name, options.at_once)
                try:
                    done = runner.run(part)
                except NotToBeHadError as error:
                    sys.stderr.write(f"{place}, {part}: left out: {error}\n")
                    continue
                results += done
                if options.record:
                    record(done)
    if options.markdown:
        options.markdown.write_text(with_section(options.markdown.read_text(), load()))
    failed = [each for each in results if each.has_failed and each.place != "real"]
    return int(bool(failed))


class Runner:
    """Runs parts of the table at one place."""

    def __init__(
        self,
        place: PlaceName,
        clients: Sequence[Language],
        home: Path,
        name: str = "",
        at_once: int = AT_ONCE,
    ) -> None:
        self._place = place
        self._clients = clients
        self._home = home
        self._name = name
        self._at_once = at_once

    def run(self, part: str) -> list[Result]:
        """Run one of `PARTS`."""
        runs: dict[str, Callable[[], list[Result]]] = {
            "plain": lambda: self._open(SCENARIOS, self._at_once),
            "many": lambda: self._open(MANY, 1),
            "holder": lambda: self._open({HOLDER: self._holder}, self._at_once),
            "codes": self._codes,
            "tls": self._tls,
            "users": self._users,
            "kills": lambda: run_kills(self._place, self._clients, self._home, self._name),
        }
        return runs[part]()

    def _open(self, scenarios: Mapping[str, Any], at_once: int) -> list[Result]:
        with ExitStack() as stack:
            agents = [
                stack.enter_context(running_agent(each, self._home / each))
                for each in self._clients
            ]
            place = stack.enter_context(running_place(self._place, self._home))
            scenes = [lambda agent=agent: Scene(place, agent) for agent in agents]
            return self._all(scenarios, agents, scenes, at_once)

    def _holder(self, scene: Scene) -> Any:  # noqa: ANN401
        language = scene.agent.language
        with running_agent(language, self._home / f"{language}-holder") as holder:
            return killed_while_it_holds(scene, holder)

    def _codes(self) -> list[Result]:
        with running_place(self._place, self._home) as place:
            found, expected = codes_at(place), expected_at(self._place)
        wrong = [
            f"{name}: {found.get(name)}, and not {code}"
            for name, code in expected.items()
            if found.get(name) != code
        ]
        return [Result(CODES, "python", self._place, not wrong, "; ".join(wrong))]

    def _tls(self) -> list[Result]:
        with ExitStack() as stack:
            place, ca_file = stack.enter_context(running_tls_place(self._place, self._home))
            agents = [
                stack.enter_context(
                    running_agent(each, self._home / each, tls=True, ca_file=ca_file)
                )
                for each in self._clients
            ]
            scenes = [lambda agent=agent: Scene(place, agent) for agent in agents]
            results = self._all(TLS_SCENARIOS, agents, scenes, self._at_once)
            # Java's and Go's libraries believe any certificate.
            looking = [agent for agent in agents if agent.language in ("python", "node", "rust")]
            scenes = [lambda agent=agent: Scene(place, agent) for agent in looking]
            return results + self._all({TLS_OTHER_CA: self._other_ca}, looking, scenes, 2)

    def _other_ca(self, scene: Scene) -> None:
        def make_agent(stack: ExitStack, ca_file: Path) -> Agent:
            language = scene.agent.language
            home = self._home / f"{language}-other"
            return stack.enter_context(running_agent(language, home, tls=True, ca_file=ca_file))

        with ExitStack() as stack:
            other_ca(scene, lambda ca_file: make_agent(stack, ca_file))

    def _users(self) -> list[Result]:
        with ExitStack() as stack:
            agents = [
                stack.enter_context(running_agent(each, self._home / each))
                for each in self._clients
            ]
            place = stack.enter_context(running_place_with_users(self._place, self._home))
            scenes = [lambda agent=agent: GuardedScene(place, agent) for agent in agents]
            return self._all(USERS_SCENARIOS, agents, scenes, self._at_once)

    def _all(
        self,
        scenarios: Mapping[str, Any],
        agents: Sequence[Agent],
        scenes: Sequence[Callable[[], Scene]],
        at_once: int,
    ) -> list[Result]:
        with ThreadPoolExecutor(at_once) as threads:
            waiting = [
                threads.submit(self._one, name, run, agent, scene)
                for name, run in scenarios.items()
                if self._name in name
                for agent, scene in zip(agents, scenes, strict=True)
            ]
            return [each.result() for each in waiting]

    def _one(
        self,
        name: str,
        run: Callable[[Scene], Any],
        agent: Agent,
        new_scene: Callable[[], Scene],
    ) -> Result:
        scene, began = new_scene(), time.monotonic()
        reason = note = lacks = ""
        try:
            said = run(scene)
            scene.close()
        except NotInLibraryError as error:
            lacks = str(error)
        except (AssertionError, OrderError, TimeoutError, ClientError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"[:500]
        else:
            note = said_in_words(said)
        ok = not reason and not lacks
        result = Result(name, agent.language, self._place, ok, reason, note, lacks)
        seconds = time.monotonic() - began
        sys.stderr.write(
            f"{self._place:8} {agent.language:7} {seconds:6.1f} s  {name}"
            f"  {reason or (lacks and f'cannot: {lacks}') or 'yes'} {note}\n"
        )
        return result


def said_in_words(said: Any) -> str:  # noqa: ANN401
    """What a scenario has measured."""
    if not isinstance(said, dict):
        return ""
    return ", ".join(
        f"{key} {value:.1f} s" if isinstance(value, float) else f"{key} {value}"
        for key, value in said.items()
        if value not in ([], "")
    )


if __name__ == "__main__":
    sys.exit(main())
