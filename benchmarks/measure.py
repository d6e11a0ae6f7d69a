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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.histories import Load  # noqa: E402
from benchmarks.history_files import kept, read_columns  # noqa: E402
from shalott.checkers.history.concurrent import ConcurrentHistory, from_rows  # noqa: E402
from shalott.checkers.linearizability.checking import Verdict, check  # noqa: E402
from shalott.checkers.reading import read_history  # noqa: E402

PORCUPINE_BYTES: Final = 2 * 1024**3  # of its heap; it has no limit of its own


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
    """``check`` on columns that are in memory, to the verdict. ``by`` may also be "porcupine"."""
    history = read_columns(Path(path))
    ask = decider(by, model, time_limit_s, prefix)
    before = peak_bytes()
    begun = time.process_time()
    verdict = ask(history)
    cpu_s = time.process_time() - begun
    return {
        "cpu_s": cpu_s,
        "peak": peak_bytes(),
        "before": before,
        "engine": verdict.memory_peak_bytes,
        "valid": verdict.valid,
        "how": verdict.cause or verdict.how,
        "operations": len(history),
    }


def decider(
    by: str, model: str, time_limit_s: float | None, prefix: bool = False
) -> Callable[[ConcurrentHistory], Verdict]:
    """Ours, or Porcupine: loaded, so that this is not in the figures."""
    if by != "porcupine":
        return lambda history: check(
            history,
            model,
            find_prefix=prefix,
            by=by,
            time_limit_s=time_limit_s,  # type: ignore[arg-type]
        )
    from shalott.checkers.porcupine.porcupine import check_with_porcupine

    check_with_porcupine(from_rows([]), model)
    return lambda history: check_with_porcupine(
        history, model, time_limit_s=time_limit_s, memory_limit_bytes=PORCUPINE_BYTES
    )


def many_files(
    files: list[str],
    expected: list[bool],
    model: str,
    by: str = "auto",
    time_limit_s: float | None = None,
) -> dict[str, Any]:
    """Every file read and checked, one after the other, as a program would do it at its start."""
    import shalott.checkers.reading.text_history  # noqa: F401 -- what read_history imports when it is needed

    ask = decider(by, model, time_limit_s)
    before = peak_bytes()
    begun = time.process_time()
    verdicts = [ask(read_history(file)).valid for file in files]
    cpu_s = time.process_time() - begun
    again = time.process_time()
    histories = [read_history(file) for file in files]
    read_s = time.process_time() - again
    return {
        "cpu_s": cpu_s,
        "peak": peak_bytes(),
        "before": before,
        "valid": verdicts == expected,
        "undecided": verdicts.count("unknown"),
        "how": f"of which {1000 * read_s:.1f} ms to read them",
        "operations": sum(map(len, histories)),
    }


if __name__ == "__main__":
    work = json.loads(sys.argv[1])
    task = {"draw": draw, "history": one_history, "files": many_files}[work.pop("task")]
    print(json.dumps(task(**work)))
