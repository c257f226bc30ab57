"""Programs that measure this project, each by itself and beside what others wrote."""

import os

# A process that a program starts would compile the modules of this checkout anew: a second of CPU
# at each start of a node, a session of Spark or a worker, which an installation does not have.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
