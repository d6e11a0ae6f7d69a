"""Helps brokers that boot together: await_others.py PROPERTIES WHAT PATIENCE_S.

A broker registers when it starts, with those name servers that it has found by then, and again
after 10 s and every 30 s; a slave learns from the answer where its master takes connections. Nodes
that boot together would wait for all of that. So, at the first boot only, brokers start when every
name server answers (WHAT: name-servers), and slaves when each knows a master (master). Since 5.0 a
broker that starts has found none yet, however long they answer: it is asked to register, as it does
whenever its permissions are set, until each name server knows it (registered).

At later boots of masters and slaves the machine of a master is as careful as who runs it should be:
its broker does not start while a name server names another master (unrivalled). The operator then
makes it a slave, and starts it again. Whom he has just made the master does not wait: a name server
may name one that was cut off and died for two minutes. One that does not answer knows of none.

All of it gives up silently.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
import time
from pathlib import Path

UPDATE_BROKER_CONFIG, GET_BROKER_CLUSTER_INFO = 25, 106
HEADER = {
    "language": "PYTHON",
    "version": 459,
    "opaque": 1,
    "flag": 0,
}
POLL_S = 0.3
_MASTERS = re.compile(rb'[{,]"?0"?:"([^"]+)"')


def asked(address: str, code: int, body: bytes = b"") -> bytes | None:
    """The answer's body; None without an answer."""
    host, _, port = address.rpartition(":")
    header = json.dumps({**HEADER, "code": code, "serializeTypeCurrentRPC": "JSON"}).encode()
    frame = struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body
    try:
        with socket.create_connection((host, int(port)), 1) as line:
            line.settimeout(1)
            line.sendall(frame)
            head = receive(line, 4)
            answer = receive(line, struct.unpack(">I", head)[0])
    except (OSError, EOFError):
        return None
    return answer[4 + (struct.unpack(">I", answer[:4])[0] & 0xFFFFFF) :]


def is_there(address: str, what: str, own: str) -> bool:
    """Whether that name server answers, names a master, names the broker itself, or names no other
    master than it."""
    body = asked(address, GET_BROKER_CLUSTER_INFO)
    if body is None:
        return what == "unrivalled"
    text = body.replace(b" ", b"")
    masters = {found.decode() for found in _MASTERS.findall(text)}
    told = {
        "name-servers": True,
        "master": bool(masters),
        "registered": f'"{own}"'.encode() in text,
        "unrivalled": masters <= {own},
    }
    return told[what]


def receive(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = line.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def main() -> None:
    file, what, patience_s = sys.argv[1:]
    pairs = (line.strip().partition("=") for line in Path(file).read_text().splitlines())
    properties = {name: value for name, _, value in pairs}
    own = f"{properties['brokerIP1']}:{properties['listenPort']}"
    if what == "unrivalled" and properties.get("brokerId") != "0":
        return
    waiting = properties["namesrvAddr"].split(";")
    until = time.monotonic() + float(patience_s)
    while waiting and time.monotonic() < until:
        waiting = [address for address in waiting if not is_there(address, what, own)]
        if waiting and what == "registered":
            asked(own, UPDATE_BROKER_CONFIG, b"brokerPermission=6")  # to read and to write
        if waiting:
            time.sleep(POLL_S)


if __name__ == "__main__":
    main()
