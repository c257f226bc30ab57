"""All sentences of which scenarios are made.

A sentence is a template with places to fill in. `SENTENCES` is all there is; the file reader
matches lines against it, and `docs/drill.md` lists it.
"""

from typing import Final

from tandem.drill.sentences.disks import DISKS
from tandem.drill.sentences.expectations import EXPECTATIONS
from tandem.drill.sentences.load import LOAD
from tandem.drill.sentences.machines import MACHINES
from tandem.drill.sentences.network import NETWORK
from tandem.drill.sentences.nodes import NODES
from tandem.drill.sentences.rot import ROT
from tandem.drill.sentences.sentence import GROUP_PATTERN, Sentence

SENTENCES: Final = (*LOAD, *NODES, *NETWORK, *DISKS, *MACHINES, *ROT, *EXPECTATIONS)
"""Every sentence, in the order in which lines are matched."""


def match(text: str) -> tuple[Sentence, dict[str, str]] | None:
    """Find the sentence of a line, and what it has in the places of the template."""
    for sentence in SENTENCES:
        found = sentence.pattern.fullmatch(text)
        if found is not None:
            return sentence, found.groupdict()
    return None


def split_group(text: str) -> tuple[str, str]:
    """Return a line without the group that it ends with, and that: its name, `another`, or ""."""
    found = GROUP_PATTERN.search(text)
    if found is None:
        return text, ""
    return text[: found.start()], found["name"] or found["other"]
