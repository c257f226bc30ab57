"""The requests that a node serves and refuses, as they are declared: for docs/compatibility.md."""

from typing import Final

import node.run  # noqa: F401  with it all that declares requests
from node.remoting.unsupported import WORDS
from node.security.access import Standing, needed
from node.security.request import ANY_USER, REQUESTS, Request
from tandem.wire.access_control import Kind

WHO: Final = {
    Standing.STRANGER: "anybody",
    Standing.ADMITTED: "admitted brokers",
    Standing.OPERATOR: "operators",
    Standing.NODE: "nodes",
}


def request_list() -> str:
    """Render the section of the page."""
    served = [
        "| code | request | who may | about what, and the rights of RocketMQ's access lists |",
        "| --- | --- | --- | --- |",
        *(_row(REQUESTS[code]) for code in sorted(REQUESTS)),
    ]
    refused: dict[str, list[int]] = {}
    for code, words in WORDS.items():
        if code not in REQUESTS:
            refused.setdefault(words, []).append(code)
    lines = ["| codes | words |", "| --- | --- |"]
    lines += [f"| {_ranges(sorted(codes))} | {words} |" for words, codes in refused.items()]
    return "\n".join(
        [
            "## Requests by code",
            "",
            "Made from the declarations above the handlers (`node/security/request.py`).",
            "[security.md](security.md) says who is who. `who may` is where `security.clients` is",
            "`open`. Where it is `authorized`, a user has to have one of the rights to each thing",
            "that is named, and operators' requests need theirs to the cluster. `in the body`",
            "means that names are in its body, several perhaps; `found` is the topic of the record",
            "that a place in the log leads to.",
            "",
            *served,
            "",
            "Every other code is answered `REQUEST_CODE_NOT_SUPPORTED` (3). Of these codes the",
            "remark says more:",
            "",
            *lines,
            "",
        ]
    )


def _row(request: Request) -> str:
    about = []
    for touch in request.touches:
        rights = ", ".join(right.value for right in touch.rights)
        kind = touch.kind.value.lower()
        if touch is ANY_USER:
            about.append("any user")
        elif touch.kind is Kind.CLUSTER:
            about.append(f"{kind}: {rights}")
        else:
            found = " in the body" if touch.in_body else " found"
            where = f" `{touch.field}`" if touch.field else found
            about.append(f"{kind}{where}: {rights}")
    who = WHO[needed(request.access)]
    return f"| {int(request.code)} | {request.code.name} | {who} | {'; '.join(about)} |"


def _ranges(codes: list[int]) -> str:
    """Numbers in a row as `first-last`."""
    parts: list[tuple[int, int]] = []
    for code in codes:
        if parts and code == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], code)
        else:
            parts.append((code, code))
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
