"""What can be wrong with a cluster file, or with what it is asked for.

Every text is one that a person at a terminal can act on; the command line prints it as it is.
"""


class ClusterError(Exception):
    """Something about a cluster; the text says what and what to do."""


class ClusterConfigError(ClusterError):
    """The cluster file is wrong or missing. Carries every problem that was found, in file order.

    Attributes:
        problems: One `file:line: key: what is wrong; remedy` text per problem.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(problems))


class UnknownNodeError(ClusterError):
    """The cluster file names no node `name`; `known` are those that it names."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        self.known = known
        super().__init__(f"no node is named {name!r}; the cluster has {', '.join(known)}")
