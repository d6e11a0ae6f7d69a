"""``rabbitmqctl`` of a node's image: asks the node of this machine, or the one that -n names.

SHALOTT_MANAGEMENT_PORT: where nodes listen, if it is not 15672. SHALOTT_COOKIE: the cluster's, by
which the node knows a tool of its own, if its configuration has one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

from shalott.broker.base.http_client import Asked
from shalott.broker.rabbit.config import COOKIE
from shalott.broker.rabbit.ctl.session import CtlError, Invalid
from shalott.broker.rabbit.ctl.verbs import read, run


def main() -> int:
    try:
        typed = read(sys.argv[1:])
        timeout_s = typed.timeout_s
    except (CtlError, Invalid) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    port = int(os.environ.get("SHALOTT_MANAGEMENT_PORT", "15672"))
    cookie = os.environ.get("SHALOTT_COOKIE", COOKIE)
    asked = Asked(typed.node or "127.0.0.1", port, cookie=cookie, timeout_s=timeout_s)
    outcome = asyncio.run(run(typed, asked, typed.node or socket.gethostname()))
    sys.stdout.write(outcome.stdout)
    sys.stderr.write(outcome.stderr)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
