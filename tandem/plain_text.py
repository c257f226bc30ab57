r"""Text of foreign origin made safe for one line of a log, a table or a terminal.

Names, remarks, keys and bodies come from anywhere. A line end in them would forge a line, an escape
sequence would colour, move or retitle a terminal, a character that turns the direction of writing
would hide what follows. They are spelled out: `\n`, `\x1b`, `\u202e`. A backslash stays as it is.
"""

import re
from typing import Final

LINE_CHARACTERS_MAX: Final = 2_000
"""What is longer is cut: nobody reads it, and a disk is full soon."""

_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls; 0x80 to 0x9f are escape sequences of one character
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of writing
    "\u2028\u2029"  # line ends that are no controls
    "\ud800-\udfff\ufeff]"  # what UTF-8 does not have, or nobody sees
)
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(text: str) -> str:
    """Return `text` with every character spelled out that a terminal or a log would act on."""
    return text if text.isprintable() else _UNSAFE.sub(_spelled_out, text)


def plain_lines(text: str) -> str:
    """Return the same with its line ends left: for texts of ours that have several lines."""
    return "\n".join(map(plain, text.split("\n")))


def plain_json(encoded: bytes) -> bytes:
    """Return JSON that means the same, and has nothing in it that a terminal acts on.

    `encoded` is UTF-8 without spaces between its parts, as msgspec makes it.
    """
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode()).encode()


def is_utf8(text: str) -> bool:
    """Whether a text can be sent and stored; one of the command line may be any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shortened(text: str, characters_max: int = LINE_CHARACTERS_MAX) -> str:
    """Return the beginning of a text that is too long, and say how long it was."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}... ({len(text):,} characters)"


def one_line(text: str, characters_max: int = LINE_CHARACTERS_MAX) -> str:
    """Return `text` for one line: not longer than is read, and safe."""
    return plain(shortened(text, characters_max))


def _spelled_out(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")
