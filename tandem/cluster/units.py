"""The systemd unit of a node: the one of the package, with the paths of a machine."""

from pathlib import Path
from typing import Final

TEMPLATE: Final = Path(__file__).with_name("tandem@.service")
"""Words between two `@` are put in: PYTHON, TANDEM, CONFIG, DATA, USER."""


def unit_text(*, python: str, config: str, data: str, user: str) -> str:
    """Return the text of `tandem@.service`. Paths are absolute, and `%` in them is literal."""
    words = {
        "@PYTHON@": python,
        "@TANDEM@": str(Path(python).parent / "tandem"),
        "@CONFIG@": config,
        "@HOME@": str(Path(config).parent),
        "@DATA@": data,
        "@USER@": user,
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(word, value.replace("%", "%%"))
    return text
