"""How long the sink of the tests waits for an answer before it sends again."""

from typing import Final

PATIENT_MS: Final = 50_000
"""Less than a send has in all, with all its tries."""
