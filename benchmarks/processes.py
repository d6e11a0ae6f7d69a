"""Measured processes: each started afresh, its CPU seconds and peak memory told by the kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
MEASURE: Final = (sys.executable, str(ROOT / "benchmarks" / "measure.py"))


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that ended."""

    exit: int
    output: str
    errors: str
    cpu_s: float
    peak: int  # bytes resident


def run(command: Sequence[str], limit_s: float | None = None, cwd: Path = ROOT) -> Ran:
    """Runs a command to its end; after ``limit_s`` of CPU time the kernel kills it."""
    limited = command if limit_s is None else ("prlimit", f"--cpu={limit_s:.0f}", *command)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(limited, stdout=output, stderr=errors, cwd=cwd)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        cpu_s = usage.ru_utime + usage.ru_stime
        return Ran(child.returncode, output.read(), errors.read(), cpu_s, usage.ru_maxrss * 1024)


def measure(work: Mapping[str, Any], runs: int = 1) -> dict[str, Any]:
    """What benchmarks/measure.py says of the run that took least CPU; the highest of the peaks."""
    results = []
    for _ in range(runs):
        ran = run([*MEASURE, json.dumps(work)])
        if ran.exit != 0:
            raise RuntimeError(f"{work} failed:\n{ran.errors}")
        results.append(json.loads(ran.output) | {"whole_s": ran.cpu_s})
    best: dict[str, Any] = min(results, key=lambda result: result.get("cpu_s", 0))
    return best | {"peak": max(result.get("peak", 0) for result in results)}
