"""Where things of the repository are, from whatever room a test is in."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
GOLDEN: Final = ROOT / "tests" / "data" / "rocketmq-5.3.3"
"""Stores and tables that RocketMQ's own classes wrote."""
