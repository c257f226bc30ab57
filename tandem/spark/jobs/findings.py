"""Whether a report says that something is wrong: then a command ends with status 1."""


def has_findings(report: object) -> bool:
    """Say whether a job has found faults, or broken promises."""
    faults = getattr(report, "faults", None) or getattr(report, "promises_broken", 0)
    return bool(faults)
