import pytest

from tandem.wire.admin_headers import settings_of
from tandem.wire.errors import MalformedFrameError


def test_a_text_of_properties() -> None:
    assert settings_of(b"# by hand\n\na=1\nb = x=y \na=2\nc=\n") == {"a": "2", "b": "x=y", "c": ""}
    assert settings_of(b"") == {}


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a", b"a=1\nnonsense", b"x" * 100_000])
def test_what_is_no_such_text(body: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        settings_of(body)
