"""What `tests.support.forked_tools` describes; starts in a hundredth of a second."""

import json
import os
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.connect(sys.argv[1])
    request = {
        "arguments": sys.argv[2:],
        "directory": os.getcwd(),  # noqa: PTH109 - nothing is imported for it
        "environment": dict(os.environ),
        "group": os.getpgid(0),
    }
    # The child is in this process group: it gets what the terminal sends, and we wait for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    status = int(connection.recv(16) or b"1")
sys.exit(status if status >= 0 else 128 - status)
