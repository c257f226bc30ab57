"""Who is meant by the words of scenarios, as far as it is known before anything starts. Pure.

A name that no node has is a mistake. A slave more than there are is not possible here: the scenario
is for a larger group. "The master" and "the others" are known as the scenario runs; what a sentence
can be done to at all is checked as its file is read (`bad_subject`).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tandem.drill.errors import BadScenarioError
from tandem.drill.scenario_file import Scenario
from tandem.drill.sentences.sentence import SEVERAL

_WORDS: Final = (*SEVERAL, "the master", "the old master", "the coordinator")
_SLAVE: Final = re.compile(r"slave (\d+)")


def check_names(scenarios: Sequence[Scenario], nodes: Sequence[str]) -> None:
    """Look whether all nodes are there that scenarios call by name.

    Raises:
        BadScenarioError: one is not; it has the scenario, the line, and the names there are.
    """
    for scenario in scenarios:
        for line, who in _subjects(scenario):
            if who not in (*_WORDS, *nodes) and not _SLAVE.fullmatch(who):
                raise BadScenarioError(
                    f"scenario {scenario.name}, line {line}: there is no node {who}; there are"
                    f" {', '.join(nodes)}, and {', '.join(_WORDS)}"
                )


def too_few(scenario: Scenario, nodes: Sequence[str]) -> str:
    """Return why a group is too small for a scenario, or ""."""
    for line, who in _subjects(scenario):
        found = _SLAVE.fullmatch(who)
        if found is not None and int(found[1]) >= len(nodes):
            return f"line {line}: there is no {who}: the group has {len(nodes)} nodes"
    return ""


def _subjects(scenario: Scenario) -> Iterator[tuple[int, str]]:
    """Yield each subject and object of its lines, with the line."""
    for step in scenario.steps:
        for place in ("who", "other"):
            # Everything is what somebody may be cut off from, and no subject.
            if place in step.words and (place, step.words[place]) != ("other", "everything"):
                yield step.line, step.words[place]
