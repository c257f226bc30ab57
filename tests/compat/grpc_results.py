"""What came of each scenario with each gRPC client, kept in the tree and shown as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tests.compat.agents import LANGUAGES, LIBRARIES, Language
from tests.compat.grpc_places import PlaceName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEADING: Final = "## gRPC without a proxy"
HEAD: Final = f"""\
{HEADING}

Every node serves RocketMQ's gRPC clients by itself where `grpc_enable` is on ([grpc.md](grpc.md)).
One program in each of five languages does what it is asked to (`tests/compat/agents.py`), so all
clients have the same scenarios: at RocketMQ's proxy 5.3.3 in CLUSTER mode with RocketMQ 5.3.3, and
here at a fenced group of three, through a follower. (Where it says so, a classic group of two:
no other node can be master there, so its slave is killed.) Nothing may be lost, nothing may come
that was not sent, and where a number of deliveries is named, it is counted. This section is written
from what the last runs recorded (`tests/compat/grpc-clients.json`):

    python -P -m tests.compat.grpc_table --record --markdown docs/compatibility.md

"-" is what there cannot be: RocketMQ has one broker here, so no other takes over; Node's client
knows one address alone; Java's and Go's believe any certificate. Or it was not run: 1,000 receives
with more than one client, and a proxy whose one address is killed. "cannot" is what a library has
nothing for: Rust's has no push consumer, no recall and no change of the invisible time, so under
load it receives in a loop where others are pushed to. Requests have 15 s. The machine had 20 times
more to do than it has processors: transactions at the proxy were asked about before they were
ended, and the 1,000 receives went past their deadlines. With users, RocketMQ's broker asks who
signs and its proxy asks for rights. A broker 5.3.3 that asks for rights itself
(`authorizationEnabled`) answers every pop of its proxy at once with POLLING_TIMEOUT, so no consumer
gets anything (apache/rocketmq#9176 and #9862); here nodes ask for rights, and consumers are served.
"""

FILE: Final = Path(__file__).parent / "grpc-clients.json"
PLACES: Final[tuple[PlaceName, ...]] = ("real", "fenced")
REASON_CHARACTERS_MAX: Final = 300
_WHERE: Final = {"real": "proxy", "classic": "here, classic group", "fenced": "here"}


class Result(msgspec.Struct, frozen=True):
    """How one scenario went with one client at one place; `note`: what it has measured."""

    scenario: str
    client: Language
    place: PlaceName
    ok: bool
    reason: str = ""
    note: str = ""
    lacks: str = ""
    """What the client's library would need for it: then it was not run."""

    @property
    def has_failed(self) -> bool:
        return not self.ok and not self.lacks

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scenario, self.client, self.place


def load() -> list[Result]:
    """Read what was recorded; nothing if nothing was."""
    return msgspec.json.decode(FILE.read_bytes(), type=list[Result]) if FILE.exists() else []


def record(results: Iterable[Result]) -> None:
    """Keep results; those of other scenarios, clients and places stay, in their order."""
    kept = {each.key: each for each in load()} | {each.key: each for each in results}
    lines = ",\n".join(_encoded(each) for each in kept.values())
    FILE.write_text(f"[\n{lines}\n]\n")


def _encoded(result: Result) -> str:
    fields = msgspec.to_builtins(result)
    if not result.lacks:
        del fields["lacks"]
    return msgspec.json.encode(fields).decode()


def verdict(results: dict[tuple[str, str, str], Result], *key: str) -> str:
    result = results.get((key[0], key[1], key[2]))
    if result is None:
        return "-"
    return "cannot" if result.lacks else ("yes" if result.ok else "no")


def section(results: Sequence[Result]) -> str:
    """The table, its sums, what is not "yes", and what was measured."""
    by_key = {each.key: each for each in results}
    scenarios = list(dict.fromkeys(each.scenario for each in results))
    heads = [f"{name}: {where}" for name in LANGUAGES for where in ("proxy", "here")]
    lines = [_line("scenario", *heads), _line(*["---"] * (1 + len(heads)))]
    for scenario in scenarios:
        cells = [verdict(by_key, scenario, name, place) for name in LANGUAGES for place in PLACES]
        lines.append(_line(scenario, *cells))
    return "\n".join([_sums(results), "", *lines, "", _wrong(results), "", _notes(results)])


def page_section(results: Sequence[Result]) -> str:
    """The section of the page, with its heading."""
    return f"{HEAD}\n{section(results)}\n"


def with_section(page: str, results: Sequence[Result]) -> str:
    """Return a page with the section in the place of the one that it has."""
    before, _, rest = page.partition(HEADING)
    return f"{before}{page_section(results)}\n## {rest.partition(chr(10) + '## ')[2]}"


def _sums(results: Sequence[Result]) -> str:
    lines = [_line("client", "proxy and RocketMQ 5.3.3", "here"), _line("---", "---", "---")]
    for name in LANGUAGES:
        cells = []
        for place in PLACES:
            mine = [
                each
                for each in results
                if (each.client, each.place) == (name, place) and not each.lacks
            ]
            cells.append(f"{sum(each.ok for each in mine)} of {len(mine)}")
        lines.append(_line(LIBRARIES[name], *cells))
    return "\n".join(lines)


def _wrong(results: Sequence[Result]) -> str:
    wrong = [each for each in results if each.has_failed]
    if not wrong:
        return 'Nothing is "no".'
    lines = [_line("no", "client, where", "what was seen"), _line("---", "---", "---")]
    for each in wrong:
        where = _WHERE[each.place]
        # A body that was not decompressed may be shown.
        shown = "".join(c if " " <= c <= "~" else " " for c in each.reason)
        reason = " ".join(shown.split())[:REASON_CHARACTERS_MAX]
        lines.append(_line(each.scenario, f"{each.client}, {where}", reason))
    return "\n".join(lines)


def _notes(results: Sequence[Result]) -> str:
    noted = [each for each in results if each.note and each.ok]
    lines = [_line("measured", "client, where", ""), _line("---", "---", "---")]
    for each in noted:
        where = _WHERE[each.place]
        lines.append(_line(each.scenario, f"{each.client}, {where}", each.note))
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
