import hashlib
import re
from base64 import b64encode

import pytest

from tandem.console.page import page_of, read_page


def digest(content: bytes) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(content).digest()).decode()}'"


def test_what_is_in_the_page_may_run_and_nothing_else() -> None:
    page = page_of(b"<style>a</style><script>b\r\nc</script><SCRIPT type='x'>d</SCRIPT>")
    directives = dict(part.split(" ", 1) for part in page.policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == f"{digest(b'b' + bytes([10]) + b'c')} {digest(b'd')}"
    assert directives["style-src"] == digest(b"a")
    assert directives["connect-src"] == "'self'"
    for name in ("base-uri", "form-action", "frame-ancestors"):
        assert directives[name] == "'none'"
    assert "unsafe" not in page.policy
    assert "img-src" not in directives
    assert b"\r" not in page.body


def test_a_page_may_have_images_of_its_own() -> None:
    assert "img-src data:" in page_of(b'<img src="data:image/png;base64,">').policy
    assert page_of(b"").policy.count("'none'") == 6


def test_a_page_that_would_load_something_is_refused() -> None:
    with pytest.raises(ValueError, match="loads something"):
        page_of(b'<script src="https://cdn.example/x.js"></script>')


def test_the_page_of_the_package_is_whole() -> None:
    page = read_page()
    assert page.body.lstrip().lower().startswith(b"<!doctype html>")
    assert "'sha256-" in page.policy
    # What the policy would stop without a word.
    assert not re.search(rb"<[a-z][^>]*\s(style|on[a-z]+)\s*=", page.body, re.IGNORECASE)
