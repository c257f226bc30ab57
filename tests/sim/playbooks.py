"""The kinds of runs that the simulation plays, and the ways to break each."""

from collections.abc import Mapping
from typing import Any, Final

from tests.sim.classic import mutations as classic_mutations
from tests.sim.classic.playbook import CLASSIC
from tests.sim.consumers.mutations import CLASSIC_MUTATIONS, FENCED_MUTATIONS
from tests.sim.consumers.playbook import CLASSIC_CONSUMERS, FENCED_CONSUMERS
from tests.sim.engine.mutation import Mutation
from tests.sim.engine.playbook import Playbook
from tests.sim.fenced import mutations as fenced_mutations
from tests.sim.fenced.playbook import FENCED
from tests.sim.fenced.version_mutations import VERSION_MUTATIONS
from tests.sim.fenced.versions import FENCED_VERSIONS
from tests.sim.pop.mutations import MUTATIONS as POP_MUTATIONS
from tests.sim.pop.playbook import FENCED_POP

PLAYBOOKS: Final[Mapping[str, Playbook[Any, Any]]] = {
    book.name: book
    for book in (
        CLASSIC,
        FENCED,
        FENCED_VERSIONS,
        CLASSIC_CONSUMERS,
        FENCED_CONSUMERS,
        FENCED_POP,
    )
}

MUTATIONS: Final[Mapping[str, Mapping[str, Mutation]]] = {
    CLASSIC.name: classic_mutations.MUTATIONS,
    FENCED.name: fenced_mutations.MUTATIONS,
    FENCED_VERSIONS.name: VERSION_MUTATIONS,
    CLASSIC_CONSUMERS.name: CLASSIC_MUTATIONS,
    FENCED_CONSUMERS.name: FENCED_MUTATIONS,
    FENCED_POP.name: POP_MUTATIONS,
}
