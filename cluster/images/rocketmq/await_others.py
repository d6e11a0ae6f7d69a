"""Waits for what a broker looks for once: await_others.py PROPERTIES WHAT PATIENCE_S.

A broker registers when it starts, with whoever is there then, and again after 10 s and every 30 s;
a slave learns from the answer where its master takes connections. Nodes that boot together would
wait for that, so, at the first boot only, brokers start when every name server answers (WHAT:
name-servers), and slaves when each knows a master (master). It gives up silently.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from pathlib import Path

GET_BROKER_CLUSTER_INFO = 106
HEADER = {
    "code": GET_BROKER_CLUSTER_INFO,
    "language": "PYTHON",
    "version": 459,
    "opaque": 1,
    "flag": 0,
}
POLL_S = 0.3


def is_there(address: str, what: str) -> bool:
    """Whether that name server answers, or names a master."""
    host, _, port = address.rpartition(":")
    header = json.dumps({**HEADER, "serializeTypeCurrentRPC": "JSON"}).encode()
    try:
        with socket.create_connection((host, int(port)), 1) as line:
            line.settimeout(1)
            line.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
            head = receive(line, 4)
            answer = receive(line, struct.unpack(">I", head)[0])
    except (OSError, EOFError):
        return False
    if what == "name-servers":
        return True
    body = answer[4 + (struct.unpack(">I", answer[:4])[0] & 0xFFFFFF) :].replace(b" ", b"")
    return b'{0:"' in body or b'"0":"' in body


def receive(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = line.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def main() -> None:
    properties, what, patience_s = sys.argv[1:]
    pairs = (text.strip().partition("=") for text in Path(properties).read_text().splitlines())
    waiting = next(value.split(";") for name, _, value in pairs if name == "namesrvAddr")
    until = time.monotonic() + float(patience_s)
    while waiting and time.monotonic() < until:
        waiting = [address for address in waiting if not is_there(address, what)]
        if waiting:
            time.sleep(POLL_S)


if __name__ == "__main__":
    main()
