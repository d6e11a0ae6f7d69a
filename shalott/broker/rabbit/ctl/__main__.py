"""``rabbitmqctl`` of a node's image: asks the node of this machine, or the one that -n names.

SHALOTT_MANAGEMENT_PORT: where nodes listen, if it is not 15672.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

from shalott.broker.base.http_client import Asked
from shalott.broker.rabbit.ctl.session import CtlError
from shalott.broker.rabbit.ctl.verbs import read, run


def main() -> int:
    try:
        typed = read(sys.argv[1:])
    except CtlError as error:
        sys.stderr.write(error.text + "\n")
        return error.exit_code
    port = int(os.environ.get("SHALOTT_MANAGEMENT_PORT", "15672"))
    timeout_s = float(typed.options.get("--timeout", "60"))
    node = typed.node or socket.gethostname()
    asked = Asked(typed.node or "127.0.0.1", port, timeout_s=timeout_s)
    outcome = asyncio.run(run(typed, asked, node))
    sys.stdout.write(outcome.stdout)
    sys.stderr.write(outcome.stderr)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
