"""All machines lose power at once, and an operator has the group go on: what may be gone then.

Only in groups whose acknowledgements mean "written". What was answered as replicated and flushed
has to be there afterwards; of everything else nobody can say what is left. So such a run is judged
in two parts: what was before, up to that moment, and not by what became of it; and what came after,
for which only promises about all disks are as good as before.
"""

from typing import Any, Final

import msgspec

from tests.sim.engine.history import Contract, Outcome, Send
from tests.sim.fenced.history import FencedHistory

TIMED: Final = (
    "reads",
    "offsets",
    "answers",
    "events",
    "acks",
    "openings",
    "cuts",
    "reports",
    "states",
    "missing",
    "lacking",
)
"""Lists of records that say when they were noted."""


def parted(history: FencedHistory) -> tuple[FencedHistory, FencedHistory]:
    """Return what a run with a blackout was before it, and what it was then."""
    at = history.blackout_at
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for name in TIMED:
        records = getattr(history, name)
        before[name] = [record for record in records if record.at_seconds < at]
        after[name] = [record for record in records if record.at_seconds >= at]
    pulls = history.empty_pulls
    return (
        FencedHistory(
            **before,
            sends=[send for send in history.sends if send.invoked_at < at],
            empty_pulls=[pull for pull in pulls if pull.answered_at < at],
            contracts=history.contracts,
            hurt=history.hurt,
            crashes=history.crashes,
        ),
        FencedHistory(
            **after,
            sends=[_as_it_stands(send, at) for send in history.sends],
            empty_pulls=[pull for pull in pulls if pull.asked_at >= at],
            contracts=history.contracts,
            hurt=history.hurt,
            drained=history.drained,
            probes=history.probes,
            nodes=history.nodes,
            rotten=history.rotten,
        ),
    )


def _as_it_stands(send: Send, blackout_at: float) -> Send:
    """Return what is known of a send after a blackout."""
    is_promised = send.outcome is Outcome.OK and send.contract is Contract.FLUSHED
    if send.invoked_at >= blackout_at or is_promised or send.outcome is Outcome.REFUSED:
        return send
    return msgspec.structs.replace(send, outcome=Outcome.UNKNOWN, answered_at=float("inf"))
