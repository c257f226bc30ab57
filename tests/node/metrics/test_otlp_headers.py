from pathlib import Path

import pytest

from node.metrics.otlp_headers import HeadersError, read_headers
from tandem.cluster_file.secret_file import SecretFault, SecretFileError


def written(directory: Path, text: str | bytes, mode: int = 0o600) -> Path:
    file = directory / "headers"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    file.chmod(mode)
    return file


def test_lines_are_headers(tmp_path: Path) -> None:
    text = "\n# of ops\nAuthorization: Bearer a:b c\r\n  X-Scope-OrgID:\torders  \n"
    assert read_headers(written(tmp_path, text)) == [
        (b"Authorization", b"Bearer a:b c"),
        (b"X-Scope-OrgID", b"orders"),
    ]
    assert read_headers(written(tmp_path, "")) == []


@pytest.mark.parametrize(
    "line",
    [
        "Bearer Secret9",
        "X Y: Secret9",
        "X:",
        "X: Secr\x00et9",
        "X: Secr\u00e9t9",
        ": Secret9",
        "Host: Secret9",
        "content-length: 9",
        "Transfer-Encoding: chunked",
    ],
)
def test_what_is_no_header_is_named_by_its_line_and_not_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(HeadersError) as caught:
        read_headers(written(tmp_path, f"A: b\n{line}\n"))
    assert caught.value.line == 2
    assert "Secr" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "mode", "fault"),
    [
        ("A: b", 0o644, SecretFault.OPEN_TO_OTHERS),
        (b"A: \xff", 0o600, SecretFault.UNREADABLE),
        ("A: b\n" * 20_000, 0o600, SecretFault.TOO_LONG),
    ],
)
def test_the_file_is_for_its_owner_alone(
    tmp_path: Path, text: str | bytes, mode: int, fault: SecretFault
) -> None:
    with pytest.raises(SecretFileError) as caught:
        read_headers(written(tmp_path, text, mode))
    assert caught.value.fault is fault


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SecretFileError) as caught:
        read_headers(tmp_path / "none")
    assert caught.value.fault is SecretFault.MISSING
