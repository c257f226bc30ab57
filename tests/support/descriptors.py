"""How many descriptors this process has before a test does something to them."""

import gc
import os


def descriptors_to_stay() -> int:
    """Count them when no garbage has any: those of tests before would go at whatever moment."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers, not paths
