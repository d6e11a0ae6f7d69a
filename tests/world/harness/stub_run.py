"""A program in the place of `shalott test`: it writes a run's files in milliseconds, with a verdict
that the run's cell is made to have. Started as harness/cli/matrix_run.py is.

STUB_RULES is a JSON list of [pattern of cells' keys, what]: "lost", "unknown", "crash" (it kills
itself), "refused", "flaky" (fails at first, and the second time that it is run again) or "slow" (it
waits until STUB_GO exists).
"""

from __future__ import annotations

import fcntl
import fnmatch
import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def main() -> int:
    lock, words = sys.argv[2], sys.argv[3:]
    fcntl.flock(os.open(lock, os.O_RDWR), fcntl.LOCK_SH)
    tags = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--tag")
    store = Path(words[words.index("--store") + 1] if "--store" in words else "store")
    seed = int(words[words.index("--seed") + 1])
    system, profile, _, workload, _ = tags["cell"].partition("@")[0].split("/")
    what = _what(tags["cell"])
    with (store / "calls.txt").open("a") as calls:
        calls.write(f"{tags['cell']}|{seed}|{tags['turn']}\n")
    if what == "refused":
        sys.stderr.write("shalott: no such thing\n")
        return 254
    directory = _directory(store / f"{system}-{profile}-{workload}")
    plan = {
        "name": f"{system}-{profile}-{workload}",
        "seed": seed,
        "cluster": {"backend": "sim", "nodes": ["n1"]},
        "system": {"name": system, "profile": profile},
        "workload": {"name": workload},
    }
    (directory / "plan.json").write_text(json.dumps(plan))
    (directory / "tags.json").write_text(json.dumps(tags))
    if what == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "slow":
        while not Path(os.environ["STUB_GO"]).exists():
            time.sleep(0.02)
    return _judge(directory, what, tags["turn"])


def _judge(directory: Path, what: str, turn: str) -> int:
    if what == "flaky":
        what = "lost" if turn in ("first", "again 2") else ""
    valid: Any = {"lost": False, "unknown": "unknown"}.get(what, True)
    result = {"checker": "total-queue", "valid": valid, "anomalies": [], "detail": {}}
    if what == "lost":
        result |= {"anomalies": [{"kind": "lost"}], "detail": {"broken": ["lost"]}}
    found = {
        "version": 1,
        "started_wall_ns": time.time_ns(),
        "valid": valid,
        "headline": f"It is {what or 'valid'}.",
        "command": "shalott test --seed 1",
        "results": [result],
    }
    (directory / "history.parquet.txt").write_text("large")
    (directory / "results.json").write_text(json.dumps(found))
    return {True: 0, False: 1}.get(valid, 2)


def _what(cell: str) -> str:
    for pattern, what in json.loads(os.environ.get("STUB_RULES", "[]")):
        if fnmatch.fnmatchcase(cell, pattern):
            return str(what)
    return ""


def _directory(parent: Path) -> Path:
    while True:
        now = datetime.now(UTC)
        path = parent / f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}Z"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path


if __name__ == "__main__":
    sys.exit(main())
