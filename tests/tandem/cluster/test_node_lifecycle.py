import re
from collections.abc import Callable

import pytest

from tandem.cluster import node_lifecycle
from tandem.cluster.errors import NodeCommandError
from tandem.cluster.node_lifecycle import NodeExit, NodeLifecycle, NodeState

EVENTS: dict[str, Callable[[NodeLifecycle], None]] = {
    "spawned": lambda life: life.spawned(4711),
    "ready": NodeLifecycle.ready,
    "paused": NodeLifecycle.paused,
    "resumed": NodeLifecycle.resumed,
    "stopping": NodeLifecycle.stopping,
    "exited": lambda life: life.exited(NodeExit(1, "no space")),
}

WAYS = {
    NodeState.STOPPED: [],
    NodeState.STARTING: ["spawned"],
    NodeState.RUNNING: ["spawned", "ready"],
    NodeState.PAUSED: ["spawned", "ready", "paused"],
    NodeState.STOPPING: ["spawned", "stopping"],
    NodeState.FAILED: ["spawned", "exited"],
}

LEGAL = {
    (NodeState.STOPPED, "spawned", NodeState.STARTING),
    (NodeState.FAILED, "spawned", NodeState.STARTING),
    (NodeState.STARTING, "ready", NodeState.RUNNING),
    (NodeState.RUNNING, "paused", NodeState.PAUSED),
    (NodeState.PAUSED, "resumed", NodeState.RUNNING),
    (NodeState.STARTING, "stopping", NodeState.STOPPING),
    (NodeState.RUNNING, "stopping", NodeState.STOPPING),
    (NodeState.PAUSED, "stopping", NodeState.STOPPING),
    (NodeState.STOPPING, "stopping", NodeState.STOPPING),
    (NodeState.STARTING, "exited", NodeState.FAILED),
    (NodeState.RUNNING, "exited", NodeState.FAILED),
    (NodeState.PAUSED, "exited", NodeState.FAILED),
    (NodeState.STOPPING, "exited", NodeState.STOPPED),
}


def lifecycle_in(state: NodeState) -> NodeLifecycle:
    life = NodeLifecycle("broker-a-0")
    for event in WAYS[state]:
        EVENTS[event](life)
    assert life.state is state
    return life


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", NodeState)
def test_every_pair_of_state_and_event_is_in_the_diagram_or_refused(
    state: NodeState, event: str
) -> None:
    life = lifecycle_in(state)
    pid = life.pid
    targets = [target for source, name, target in LEGAL if (source, name) == (state, event)]
    if targets:
        EVENTS[event](life)
        assert [life.state] == targets
    else:
        with pytest.raises(NodeCommandError) as caught:
            EVENTS[event](life)
        assert (caught.value.name, caught.value.state) == ("broker-a-0", state.value)
        assert (life.state, life.pid) == (state, pid)


def test_a_refusal_names_the_node_its_state_and_the_wish() -> None:
    with pytest.raises(NodeCommandError, match="broker-a-0 is RUNNING: it cannot be started"):
        lifecycle_in(NodeState.RUNNING).spawned(4712)


@pytest.mark.parametrize("state", NodeState)
def test_a_pid_is_known_exactly_while_there_is_a_process(state: NodeState) -> None:
    life = lifecycle_in(state)
    assert (life.pid is not None) == life.has_process


def test_the_diagram_names_the_states_and_the_events() -> None:
    diagram = (node_lifecycle.__doc__ or "").split("An exit")[0]
    assert set(re.findall(r"\b[A-Z]{2,}\b", diagram)) == {state.value for state in NodeState}
    assert set(re.findall(r"\b(\w+)\(\)", diagram)) == set(EVENTS)


def test_starts_are_counted_and_forget_the_exit_before() -> None:
    life = lifecycle_in(NodeState.FAILED)
    assert life.last_exit == NodeExit(1, "no space")
    life.spawned(4712)
    after: list[object] = [life.pid, life.starts_count, life.last_exit]
    assert after == [4712, 2, None]


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (NodeExit(0, "bye"), "ended with status 0"),
        (NodeExit(3, "port taken"), "ended with status 3: port taken"),
        (NodeExit(1, ""), "ended with status 1"),
        (NodeExit(-9, "half a li"), "ended by SIGKILL"),
    ],
)
def test_an_exit_is_told_in_one_line(end: NodeExit, text: str) -> None:
    assert end.text == text
