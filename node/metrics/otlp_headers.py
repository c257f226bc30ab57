"""The headers that exports have: a token, mostly. They are in a file, and nothing else shows them.

    Authorization: Bearer 5b1f...
    # a comment
    X-Scope-OrgID: orders

It is read again for each export, so a new token needs no restart. Errors name the file and the line
and never what is in it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tandem.cluster_file.secret_file import read_private

Header = tuple[bytes, bytes]

_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e](?:[\t\x20-\x7e]*))")
"""A name and a value, as HTTP has them. Source: RFC 9110, 5.1 and 5.5, without what is obsolete."""

_OURS: Final = frozenset(
    {
        *("host", "content-length", "content-type", "content-encoding", "transfer-encoding"),
        *("connection", "upgrade", "te", "trailer", "expect"),
    }
)
"""What a request says of itself, and of its connection."""


class HeadersError(Exception):
    """A line is no header. `line` is its number."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


def read_headers(file: Path) -> list[Header]:
    """Return the headers in a file that is for its owner alone.

    Raises:
        SecretFileError: It cannot be read, or is open to others.
        HeadersError: It has a line that is no header of an export.
    """
    headers: list[Header] = []
    for number, line in enumerate(read_private(file, str(file)).splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        found = _LINE.fullmatch(words)
        if found is None:
            raise HeadersError(f"{file}:{number}: is no header; write Name: value", number)
        name, value = found.groups()
        if name.lower() in _OURS:
            text = f"{file}:{number}: {name} is the export's own; take the line out"
            raise HeadersError(text, number)
        headers.append((name.encode(), value.encode()))
    return headers
