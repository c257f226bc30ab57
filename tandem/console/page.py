"""The page: one file of the package, and the policy that lets it run what is in it, and no more.

The hashes are of what is between the tags, byte by byte, as browsers compute them.

Source: https://www.w3.org/TR/CSP3/#match-element-to-source-list
"""

import hashlib
import re
from base64 import b64encode
from importlib.resources import files
from typing import Final

import msgspec

PAGE_FILE: Final = "page.html"

_ELEMENT: Final = re.compile(rb"<(script|style)\b([^>]*)>(.*?)</\1\s*>", re.DOTALL | re.IGNORECASE)
_DATA_IMAGE: Final = b"data:image/"


class Page(msgspec.Struct, frozen=True):
    """What is sent, and the Content-Security-Policy that goes with it."""

    body: bytes
    policy: str


def read_page() -> Page:
    """Return the page of the package."""
    return page_of(files("tandem.console").joinpath(PAGE_FILE).read_bytes())


def page_of(body: bytes) -> Page:
    """Return a page with its policy.

    Raises:
        ValueError: an element would load something, which the policy forbids.
    """
    # A browser reads CRLF as LF before it looks at an element.
    body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    hashes: dict[bytes, list[str]] = {b"script": [], b"style": []}
    for kind, attributes, content in _ELEMENT.findall(body):
        if re.search(rb"\bsrc\s*=", attributes, re.IGNORECASE):
            raise ValueError(f"the page loads something: <{kind.decode()}{attributes.decode()}>")
        digest = b64encode(hashlib.sha256(content).digest()).decode()
        hashes[kind.lower()].append(f"'sha256-{digest}'")
    sources = {
        "default-src": ["'none'"],
        "script-src": hashes[b"script"] or ["'none'"],
        "style-src": hashes[b"style"] or ["'none'"],
        "connect-src": ["'self'"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
    if _DATA_IMAGE in body:
        sources["img-src"] = ["data:"]
    policy = "; ".join(" ".join([name, *values]) for name, values in sources.items())
    return Page(body, policy)
