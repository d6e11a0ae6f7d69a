"""A client's program that goes wrong as its argument says, after as many good answers as its second
says. A good answer to ``receive`` or ``read`` is null, else it is empty."""

from __future__ import annotations

import json
import os
import signal
import sys
import time


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def good(asked: dict[str, object]) -> str:
    values = {"cas": True, "send": 0, "poll": {}, "txn": asked.get("value")}
    answer = {"id": asked["id"], "type": "ok", "value": values.get(str(asked["f"]))}
    return json.dumps(answer) + "\n"


def strange(how: str, asked: dict[str, object]) -> None:
    number = asked["id"]
    match how:
        case "dies":
            sys.stderr.write("Traceback: it broke\n")
            sys.exit(3)
        case "is-killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "closes":
            os.close(1)
            time.sleep(60)
        case "stalls":
            time.sleep(60)
        case "stops-reading":
            os.close(0)
            time.sleep(60)
        case "no-json":
            say("hello\n")
        case "half-a-line":
            say('{"id": ')
            sys.exit(0)
        case "no-object":
            say("[1, 2]\n")
        case "no-text":
            sys.stdout.buffer.write(b"\xff\xfe{}\n")
            sys.stdout.flush()
        case "deep":
            say('{"id": 1, "type": "ok", "value": ' + "[" * 100_000 + "}\n")
        case "wrong-id":
            say(json.dumps({"id": 999, "type": "ok"}) + "\n")
        case "id-of-text":
            say(json.dumps({"id": str(number), "type": "ok"}) + "\n")
        case "wrong-type":
            say(json.dumps({"id": number, "type": "maybe"}) + "\n")
        case "no-type":
            say(json.dumps({"id": number}) + "\n")
        case "wrong-value":
            say(json.dumps({"id": number, "type": "ok", "value": {"x": [1.5]}}) + "\n")
        case "huge-line":
            say("x" * (3 << 20) + "\n")
        case "endless-line":
            while True:
                say("x" * 65536)
        case "floods-output":
            while True:
                say(json.dumps({"id": number, "type": "info"}) + "\n")
        case "floods-errors":
            while True:
                sys.stderr.write("x" * 65536)
        case "answers-twice":
            say(good(asked) * 2)
        case "late":
            time.sleep(0.6)
            say(good(asked))
        case "tells-of-all" | "tells-of-others":
            if isinstance(places := asked["value"], dict):
                first = 0 if how == "tells-of-all" else -1
                value = {name[first:]: [[at, int(name[-1])]] for name, at in places.items()}
                asked = {**asked, "f": "txn", "value": value}
            say(good(asked))
        case "says-fail":
            say(json.dumps({"id": number, "type": "fail", "error": "refused"}) + "\n")
        case "says-info":
            say(json.dumps({"id": number, "type": "info", "error": "who knows"}) + "\n")
        case "leaves-children":
            if os.fork() == 0:
                time.sleep(60)
            sys.exit(0)


def main() -> None:
    how, times = sys.argv[1], int(sys.argv[2])
    for count, line in enumerate(sys.stdin):
        asked = json.loads(line)
        if count < times:
            say(good(asked))
        else:
            strange(how, asked)


if __name__ == "__main__":
    main()
