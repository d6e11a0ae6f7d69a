"""Waits until name servers know a master: await_master.py PROPERTIES PATIENCE_S.

A slave learns where its master takes connections from the name server's answer to its own
registration, at boot and then every 30 s. Whoever boots together would wait for that; so, at the
first boot only, the others start when the first broker is known. It gives up silently.
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


def knows_master(address: str) -> bool:
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
    lines = Path(sys.argv[1]).read_text().splitlines()
    pairs = (text.strip().partition("=") for text in lines)
    waiting = next(value.split(";") for name, _, value in pairs if name == "namesrvAddr")
    until = time.monotonic() + float(sys.argv[2])
    while waiting and time.monotonic() < until:
        waiting = [address for address in waiting if not knows_master(address)]
        if waiting:
            time.sleep(POLL_S)


if __name__ == "__main__":
    main()
