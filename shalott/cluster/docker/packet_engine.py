"""The packet engine of containers: ``python -m shalott.cluster.docker.packet_engine OWNER TOKEN
SEED``.

One process serves the queues of all nodes, each made in the network namespace of its node
(cluster/packets/engine.py). ``OWNER`` tells a sweeper whose it is (packets.py).
"""

from __future__ import annotations

import sys

from shalott.cluster.docker.namespaces import in_namespace
from shalott.cluster.packets.engine import serve
from shalott.cluster.packets.queue import PacketQueue

QUEUE = 5177  # its number in every namespace; it is ours alone


def open_queue(pid: int) -> PacketQueue:
    """Raises OSError."""
    return in_namespace(pid, lambda: PacketQueue(QUEUE))


def main(arguments: list[str]) -> None:
    serve(int(arguments[2]), sys.stdin.fileno(), sys.stdout.fileno(), open_queue)


if __name__ == "__main__":
    main(sys.argv[1:])
