"""A client of registers that the first node of Redis keeps."""

from __future__ import annotations

import json
import os
import socket
import sys
from io import BufferedRWPair

PASSWORD = "secret1"
CAS = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) return 1 end
return 0
"""
HOST, _, PORT = os.environ["SHALOTT_NODES"].split(",")[0].partition("=")[2].partition(":")


def connect() -> BufferedRWPair:
    conn = socket.create_connection((HOST, int(PORT)), 1)
    conn.settimeout(3)
    lines = conn.makefile("rwb")
    ask(lines, "AUTH", PASSWORD)
    return lines


def ask(lines: BufferedRWPair, *words: str) -> tuple[str, str | None]:
    asked = b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in map(str.encode, words))
    lines.write(b"*%d\r\n" % len(words) + asked)
    lines.flush()
    line = lines.readline().decode().strip()
    if not line:
        return "info", "the connection ended"
    if line[0] == "-":
        return "fail", line
    if line[0] == "$" and line != "$-1":
        return "ok", lines.readline().decode().strip()
    return "ok", line[1:] if line[0] == ":" else None


def perform(lines: BufferedRWPair, asked: dict[str, object]) -> dict[str, object]:
    key, value = str(asked["key"]), asked.get("value")
    if asked["f"] == "read":
        kind, said = ask(lines, "GET", key)
        done: object = int(said) if kind == "ok" and said else None
    elif asked["f"] == "write":
        kind, said = ask(lines, "SET", key, str(value))
        done = None
    else:
        assert isinstance(value, list)
        kind, said = ask(lines, "EVAL", CAS, "1", key, *map(str, value))
        done = said == "1"
    return {"type": kind, "value": done} if kind == "ok" else {"type": kind, "error": said}


lines: BufferedRWPair | None = None
for line in sys.stdin:
    asked = json.loads(line)
    try:
        lines = lines or connect()
    except OSError as error:
        answer: dict[str, object] = {"type": "fail", "error": str(error)}
    else:
        try:
            answer = perform(lines, asked)
        except OSError as error:
            answer = {"type": "info", "error": str(error)}
    print(json.dumps({"id": asked["id"], **answer}), flush=True)  # noqa: T201 (its answer)
