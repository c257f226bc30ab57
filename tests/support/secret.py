"""The secret of clusters that tests make up, and its file."""

from pathlib import Path
from typing import Final

SECRET: Final = "0123456789abcdef0123456789abcdef"


def write_secret(file: Path, secret: str = SECRET) -> None:
    """Write a file that nobody else may read: no other is taken."""
    file.touch(mode=0o600)
    file.write_text(secret, encoding="utf-8")
