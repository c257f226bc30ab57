"""The part of the table of gRPC clients in which nodes, or proxies, are killed."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from tandem.testing import running_cluster, running_fenced_cluster
from tests.compat.agents import running_agent
from tests.compat.grpc_failures import (
    connected_killed,
    followers,
    handles_of_the_old_master,
    master_killed,
    only_address_restarted,
)
from tests.compat.grpc_places import Place
from tests.compat.grpc_results import Result
from tests.compat.proxy import running_proxy
from tests.compat.targets import Target, running_target, settings_of_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tandem.testing import RunningCluster
    from tests.compat.agents import Agent, Answer, Language
    from tests.compat.grpc_places import PlaceName

MASTER: Final = "the master is killed under load: nothing lost, order kept, transactions decided"
CONNECTED: Final = "two addresses, each killed in its turn: no send fails, nothing lost"
ONLY: Final = "the one address is killed and back: all go on, a handle from before is good"
HANDLES: Final = "a handle of the killed master is good at the new one, an expired one is refused"
KILLS: Final = (MASTER, CONNECTED, ONLY, HANDLES)


def run_kills(place: PlaceName, clients: Sequence[Language], home: Path, part: str) -> list[Result]:
    """Run all that the place can have: RocketMQ has one broker here, and its proxy one address."""
    results: list[Result] = []
    with ExitStack() as stack:
        agents = [stack.enter_context(running_agent(each, home / each)) for each in clients]
        for name, run in _RUNS[place](stack, home):
            if part not in name:
                continue
            able = [each for each in agents if name != CONNECTED or each.language != "node"]
            for language, answer in run(able).items():
                result = _result(name, language, place, answer)
                results.append(result)
                words = result.reason or f"yes {result.note}"
                sys.stderr.write(f"{place:8} {language:7} {name}  {words}\n")
    return results


def _result(name: str, language: Language, place: PlaceName, answer: Answer) -> Result:
    value: Any = answer.get("value") or {}
    if name == CONNECTED and answer["ok"] and value["failed"]:
        answer = {"ok": False, "reason": f"{value['failed']} sends failed: {value['errors']}"}
    words = {
        "sends": "{} sends",
        "failed": "{} of them failed",
        "silence": "at most {:.1f} s between two acknowledged",
        "halves": "{} transactions",
        "halves failed": "{} of them failed",
        "send": "sends after {:.1f} s",
        "push": "push after {:.1f} s",
        "loop": "a loop of receives after {:.1f} s",
        "receive": "simple after {:.1f} s",
        "ack": "acknowledged after {:.1f} s",
    }
    note = ", ".join(text.format(value[key]) for key, text in words.items() if key in value)
    if value.get("errors"):
        note += f" ({'; '.join(value['errors'])[:160]})"
    return Result(name, language, place, answer["ok"], answer.get("reason", "")[:500], note)


def _of_ours(stack: ExitStack, home: Path) -> Any:  # noqa: ANN401
    cluster = stack.enter_context(running_fenced_cluster(home, settings=settings_of_ours()))
    target = Target("fenced", ";".join(cluster.name_servers))
    everywhere = Place("fenced", target.name_servers, target)
    yield HANDLES, lambda agents: _whole(handles_of_the_old_master, everywhere, cluster, agents)
    yield CONNECTED, lambda agents: _whole(connected_killed, everywhere, cluster, agents)
    yield MASTER, lambda agents: _whole(master_killed, everywhere, cluster, agents)
    yield ONLY, lambda agents: _at_one_node(cluster, target, agents)


def _of_classic(stack: ExitStack, home: Path) -> Any:  # noqa: ANN401
    """Nobody takes over there: the one address is that of a slave, which is killed."""
    running = running_cluster(home, slaves_count=1, settings=settings_of_ours())
    cluster = stack.enter_context(running)
    target = Target("classic", ";".join(cluster.name_servers))
    yield ONLY, lambda agents: _at_one_node(cluster, target, agents)


def _whole(
    run: Callable[[Place, RunningCluster, Sequence[Agent]], dict[Language, Answer]],
    place: Place,
    cluster: RunningCluster,
    agents: Sequence[Agent],
) -> dict[Language, Answer]:
    cluster.wait_in_sync(seconds_max=120)
    return run(place, cluster, agents)


def _at_one_node(
    cluster: RunningCluster, target: Target, agents: Sequence[Agent]
) -> dict[Language, Answer]:
    cluster.wait_in_sync(seconds_max=120)
    (node, *_) = followers(cluster)
    place = Place(target.name, cluster.spec.node(node).client_address, target)
    return only_address_restarted(
        place, agents, lambda: cluster.kill(node), lambda: cluster.start(node)
    )


def _of_a_proxy(stack: ExitStack, home: Path) -> Any:  # noqa: ANN401
    target = stack.enter_context(running_target("real", home))
    settings = {"topicRouteServiceCacheRefreshSeconds": 1}
    proxy = stack.enter_context(running_proxy(home, target.name_servers, settings))
    place = Place("real", proxy.grpc, target)
    yield ONLY, lambda agents: only_address_restarted(place, agents, proxy.kill, proxy.start)


_RUNS: Final = {"real": _of_a_proxy, "classic": _of_classic, "fenced": _of_ours}
