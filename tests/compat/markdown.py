"""The table as a page: docs/compatibility.md is written by `--markdown`, never by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.compat.grpc_results import load, page_section
from tests.compat.refusals import REFUSALS
from tests.compat.request_list import request_list
from tests.compat.table import Row, reason_of, sums_of
from tests.compat.targets import TARGET_NAMES, TargetName

SUITE_TITLES: Final = {
    "java5": "Java applications, rocketmq-client 5.3.3",
    "java55": "Java applications, rocketmq-client 5.5.0",
    "java4": "Java applications, rocketmq-client 4.9.8",
    "go": "Go applications, rocketmq-client-go 2.1.2",
    "node": "Node applications, ali-ons 3.12.0",
    "cpp": "C++ client 1.2, through the package `rocketmq` 0.4.4 of PyPI",
    "admin": "Operators' programs, DefaultMQAdminExt 5.3.3",
    "admin55": "Operators' programs, DefaultMQAdminExt 5.5.0",
    "sequences": "What rocketmq-exporter and the Dashboard ask",
    "sequences55": "What rocketmq-exporter and the Dashboard ask, with DefaultMQAdminExt 5.5.0",
    "mqadmin": "mqadmin 5.3.3",
    "mqadmin55": "mqadmin 5.5.0",
    "users": "mqadmin 5.3.3: users and access lists",
    "users55": "mqadmin 5.5.0: users and access lists",
}
TARGET_TITLES: Final[dict[TargetName, str]] = {
    "real": "RocketMQ 5.3.3",
    "classic": "classic group",
    "fenced": "fenced group",
}

HEAD: Final = """\
# Compatibility with RocketMQ's clients and tools

Unmodified clients and tools, run against a broker and name server of RocketMQ 5.3.3 and against
both kinds of our groups. A scenario counts only if it passes on RocketMQ itself. This page is
written by the run:

    python -P -m tests.compat --markdown docs/compatibility.md

`tests/compat` has the programs. They are fetched and compiled when they run: Java with Maven, Go,
Node and pip are needed, and a network the first time; what is not to be had is left out and said
so. `--target classic,fenced`, `--only java5,mqadmin` and `--name transaction` run parts; RocketMQ's
own results are then the recorded ones (`tests/compat/rocketmq-5.3.3.json`, written by `--record`).

With `--tls` Java's programs speak TLS. With `--users` they are users: producers may send and create
topics, consumers may read topics and consume in groups, and neither may anything else; tools are a
Super. RocketMQ asks for users then, too, and mqadmin's commands of users are run in addition.

Tools sign with the operator's credentials ([security.md](security.md)). What has to be switched on
here as in RocketMQ: `enable_property_filter`, `recall_message_enable`, `timer_wheel_enable`. What
mqadmin prints is compared line by line, without numbers, times, addresses and ids; where the lines
depend on how many brokers or topics there are, only the heads of the columns are.

rocketmq-exporter and the Dashboard are not on Maven, and no Studio is on npm. What the exporter's
tasks and the Dashboard's pages ask is asked in their order with DefaultMQAdminExt 5.3.3, and the
answers are compared by keys and kinds of values: what RocketMQ answers has to be answered. The
numbers that the exporter wants from a broker's runtime info, all or none, have to be numbers.
"""

PROXY: Final = """\
## Behind RocketMQ's proxy

`rocketmq-proxy` 5.3.3 in CLUSTER mode starts before both kinds of our groups as it does before
RocketMQ: it needs their name servers and nothing else (`tests/compat/test_proxy.py`, with
rocketmq-client 5.3.3 and rocketmq-client-java).

| application | RocketMQ 5.3.3 | classic group | fenced group |
| --- | --- | --- | --- |
| remoting: sends (one-way, many, in order, delay level, transactions) | yes | yes | yes |
| remoting: push consumers (also in order), retries, pull consumers | yes | yes | yes |
| gRPC: sends (normal, FIFO, delay, transactions) | yes | yes | yes |
| both: a message of a type that its topic is not for is refused | yes | yes | yes |
| gRPC: simple and push consumers | yes | yes | yes |

A proxy that asks for users itself (`authenticationEnabled`) has them from its brokers, with their
passwords. Our nodes show nobody a password ([security.md](security.md)), so such a proxy takes
nobody; a node that serves gRPC clients by itself asks for users and rights, too.

Consumers over gRPC have nothing but POP, which the proxy asks our nodes for. Transactions include
those that are asked about.

When a master is killed, the proxy does not know it before it looks for routes again, every 20 s;
nothing that a broker says makes it look sooner. Measured twice, with three nodes on one busy
machine, the longest time without a message stored: 21 s (remoting) and 16 s (gRPC) with the proxy's
defaults, 6 s and 2 s with `topicRouteServiceCacheRefreshSeconds` at 1 in the proxy's configuration.
Over gRPC the proxy answers at once that the broker cannot be reached; over remoting it does not
answer, and the application's client waits for its timeout, 3 s, before it tries again.
"""


AFTER: Final = (Path(__file__).parent / "after-5.3.md").read_text()
STREAMS: Final = (Path(__file__).parent / "streams.md").read_text()


def page_of(rows: Sequence[Row]) -> str:
    """Render the whole page."""
    parts = [HEAD, _sums(rows), _refusals(rows), _failures(rows), AFTER]
    parts += [page_section(load()), PROXY, STREAMS]
    parts += [_suite(suite, title, rows) for suite, title in SUITE_TITLES.items()]
    return "\n".join(part for part in [*parts, request_list()] if part)


def _sums(rows: Sequence[Row]) -> str:
    lines = [_line("suite", "result"), _line("---", "---")]
    lines += [_line(suite, words) for suite, words in sums_of(rows)]
    return "\n".join(["## Sums", "", *lines, ""])


def _refusals(rows: Sequence[Row]) -> str:
    names: dict[str, list[str]] = {}
    present = {(row.suite, row.name) for row in rows}
    for key, why in REFUSALS.items():
        if key in present:
            names.setdefault(why, []).append(f"{key[0]}: `{key[1]}`")
    lines = [_line("refused", "why"), _line("---", "---")]
    lines += [_line(", ".join(scenarios), why) for why, scenarios in names.items()]
    return "\n".join(["## Refused by design", "", *lines, ""])


def _failures(rows: Sequence[Row]) -> str:
    failing = [row for row in rows if row.failures]
    if not failing:
        return ""
    lines = [_line("suite", "scenario", "what is wrong"), _line("---", "---", "---")]
    lines += [_line(row.suite, row.name, reason_of(row)) for row in failing]
    return "\n".join(["## Not yet as RocketMQ does it", "", *lines, ""])


def _suite(suite: str, title: str, rows: Sequence[Row]) -> str:
    mine = [row for row in rows if row.suite == suite and row.counts]
    if not mine:
        return ""
    lines = [
        _line("scenario", *(TARGET_TITLES[name] for name in TARGET_NAMES)),
        _line(*["---"] * (1 + len(TARGET_NAMES))),
        *(_line(row.name, *(row.verdict(name) for name in TARGET_NAMES)) for row in mine),
    ]
    return "\n".join([f"## {title}", "", *lines, ""])


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
