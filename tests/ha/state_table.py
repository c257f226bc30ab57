"""What each event does in each state of a protocol, as a table that a test goes through."""

from collections.abc import Callable, Mapping

import pytest

from ha.errors import HAError, RemoteHAError

Outcome = str | type[HAError]
"""The state after the event, or the error that it is."""


def cells(rows: Mapping[str, Mapping[Outcome, str]]) -> dict[tuple[str, str], Outcome]:
    """Return the outcome of each state and event; events of one outcome have commas between."""
    table: dict[tuple[str, str], Outcome] = {}
    for state, row in rows.items():
        for outcome, events in row.items():
            for event in events.split(", "):
                assert (state, event) not in table
                table[state, event] = outcome
    return table


def check_cell(
    state: str, outcome: Outcome, act: Callable[[], object], now: Callable[[], str], *, broken: str
) -> None:
    """Act in a state. An error of the other end leaves `broken`, one of ours leaves the state."""
    if isinstance(outcome, str):
        act()
        assert now() == outcome
        return
    with pytest.raises(outcome):
        act()
    assert now() == (broken if issubclass(outcome, RemoteHAError) else state)
