"""`python -P -m tandem.cluster.fork_server FD MODULE...`: see `tandem.cluster.forking`."""

import sys

from tandem.cluster.forking import run_fork_server

if __name__ == "__main__":
    sys.exit(run_fork_server(int(sys.argv[1]), sys.argv[2:]))
