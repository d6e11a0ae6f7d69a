"""One measurement of benchmarks/checking.py, alone in its process: reads what to do from its first
argument (JSON), prints what came out (JSON).

CPU seconds are the process's, of all threads, from before the first call to after the last: what
was imported and drawn before does not count. Memory is the peak resident set of the process, with
interpreter, libraries and the history itself in it; ``before`` is the same before the check.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.histories import Load  # noqa: E402
from benchmarks.history_files import kept, read_columns  # noqa: E402
from shalott.checkers.linearizability.checking import check  # noqa: E402
from shalott.checkers.reading import read_history  # noqa: E402


def peak_bytes() -> int:
    """The most that was resident since the program was started (not, as rusage has it, forked)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def draw(model: str, load: dict[str, Any], ending: str) -> dict[str, Any]:
    """The file with that history. Drawn here, so that who measures stays small."""
    return {"path": str(kept(model, Load(**load), ending))}


def one_history(
    path: str, model: str, prefix: bool, by: str, time_limit_s: float | None
) -> dict[str, Any]:
    """``check`` on columns that are in memory, to the verdict."""
    history = read_columns(Path(path))
    before = peak_bytes()
    begun = time.process_time()
    verdict = check(history, model, find_prefix=prefix, by=by, time_limit_s=time_limit_s)  # type: ignore[arg-type]
    cpu_s = time.process_time() - begun
    return {
        "cpu_s": cpu_s,
        "peak": peak_bytes(),
        "before": before,
        "engine": verdict.memory_peak_bytes,
        "valid": verdict.valid,
        "how": verdict.how or verdict.cause,
        "operations": len(history),
    }


def many_files(files: list[str], expected: list[bool], model: str) -> dict[str, Any]:
    """Every file read and checked, one after the other, as a program would do it at its start."""
    import shalott.checkers.reading.text  # noqa: F401 -- what read_history imports when it is needed

    before = peak_bytes()
    begun = time.process_time()
    verdicts = [check(read_history(file), model).valid for file in files]
    cpu_s = time.process_time() - begun
    again = time.process_time()
    histories = [read_history(file) for file in files]
    read_s = time.process_time() - again
    return {
        "cpu_s": cpu_s,
        "peak": peak_bytes(),
        "before": before,
        "valid": verdicts == expected,
        "how": f"of which {1000 * read_s:.1f} ms to read them",
        "operations": sum(map(len, histories)),
    }


if __name__ == "__main__":
    work = json.loads(sys.argv[1])
    task = {"draw": draw, "history": one_history, "files": many_files}[work.pop("task")]
    print(json.dumps(task(**work)))
