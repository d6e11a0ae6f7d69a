"""A second opinion on linearizability: Porcupine (https://github.com/anishathalye/porcupine).

Its search (Athalye 2017, after Lowe 2017) and models written in Go share no code with our engine
and our models, so that a mistake of ours does not hide itself. What both have in common is the
reading of files and what is passed on of an operation (porcupine_columns.py).

The library is loaded when it is first asked. From then on the process holds the Go runtime: it
leaves Ctrl-C to Python, and a process that is forked afterwards can't use it (spawned ones can).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cffi
import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import cores
from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.linearizability.explanation import CheckInterrupted, Verdict, Violation
from shalott.checkers.linearizability.transitions import canonical
from shalott.checkers.models import Model, make_model, model_name
from shalott.checkers.porcupine.porcupine_columns import EncodedHistory, encode
from shalott.core.errors import HarnessError, ShalottError, UsageError

FUNCTIONS: Final = """
uintptr_t shalott_start(char *model, int64_t *options, int64_t option_count,
    int64_t *rows, int64_t row_count, int64_t *values, int64_t value_count,
    int64_t time_limit_ns, int64_t memory_limit_bytes);
int shalott_wait(uintptr_t handle, int64_t timeout_ns, int64_t *answer);
char *shalott_text(uintptr_t handle);
void shalott_free(char *text);
void shalott_close(uintptr_t handle);
"""
# What a check found out, in the order of bridge/run.go.
VALID, INVALID, OUT_OF_TIME, OUT_OF_MEMORY, CANCELLED, MISUSED, BROKEN = range(7)
CAUSES: Final = {OUT_OF_TIME: "time", OUT_OF_MEMORY: "memory", CANCELLED: "cancelled"}
WAIT_NS: Final = 50_000_000  # so often Python looks whether there was a signal


@dataclass(frozen=True, slots=True)
class Answer:
    found: int
    key: int  # the code of the one that is not linearizable; -1: none
    keys_decided: int
    heap_bytes: int  # the most that Go's heap held
    row: int  # the operation that could not be taken; -1: none
    text: str


def check_with_porcupine(
    history: ConcurrentHistory,
    model: Model | str,
    *,
    time_limit_s: float | None = None,
    memory_limit_bytes: int | None = None,
) -> Verdict:
    """Asks Porcupine about every key of ``history``, all at once, until one is found to be invalid.

    Args:
        history: As ``checkers.linearizability.checking.check`` takes it.
        model: One of ``encode.SPELLINGS``, or what ``make_model`` makes one of.
        time_limit_s: Seconds from now; None: no limit.
        memory_limit_bytes: What Go's heap may hold, looked at 20 times a second; None: no limit.
            Porcupine itself has none, and remembers every configuration that it met.

    Returns:
        The verdict. An invalid one names the key; which operations prove it is not known.

    Raises:
        UsageError: Porcupine can't be built here; the bridge has no such model; an operation that
            the model does not understand.
        HarnessError: the bridge failed, or this process was forked after it was loaded.
        CheckInterrupted: Ctrl-C; it carries a verdict with the cause "cancelled".
    """
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    model = make_model(model) if isinstance(model, str) else model
    name, how = model_name(model), f"Porcupine {porcupine_version()}"
    history = canonical(history, model)
    encoded = encode(history, model)
    left_s = None
    if time_limit_s is not None:
        left_s = max(1e-9, time_limit_s - (time.monotonic() - began_s))
    cancelled = False
    try:
        answer = _ask(encoded, left_s, memory_limit_bytes)
    except KeyboardInterrupt:
        answer, cancelled = Answer(CANCELLED, -1, 0, 0, -1, ""), True
    if answer.found in (MISUSED, BROKEN):
        _refuse(answer, history, encoded, name)
    violation = None
    if answer.found == INVALID:
        reason = f"no order of the operations is one that a {name} allows"
        violation = Violation(key=history.key.names[answer.key], by=how, reason=reason)
    keys = len(np.unique(history.key.codes)) or 1
    is_unknown = answer.found in CAUSES
    verdict = Verdict(
        valid={VALID: True, INVALID: False}.get(answer.found, "unknown"),
        model=name,
        how=how,
        cause=CAUSES.get(answer.found, ""),
        progress=(
            f"{answer.keys_decided} of {keys} keys were decided" if is_unknown and keys > 1 else ""
        ),
        violation=violation,
        operations=len(history),
        keys=keys,
        keys_decided=answer.keys_decided,
        threads=cores(),
        elapsed_s=time.monotonic() - began_s,
        cpu_s=time.process_time() - began_cpu_s,
        memory_peak_bytes=answer.heap_bytes,
    )
    if cancelled:
        raise CheckInterrupted(verdict)
    return verdict


def _refuse(
    answer: Answer, history: ConcurrentHistory, encoded: EncodedHistory, model: str
) -> None:
    if answer.found == BROKEN:
        raise HarnessError(f"the bridge to Porcupine failed: {answer.text}")
    row = encoded.places[answer.row]
    where = f"{history.place_name} {history.place[row]}"
    raise UsageError(f"model {model} can't take {where}: {answer.text}")


# --- the library ----------------------------------------------------------------------------------


@functools.cache
def _library() -> tuple[Any, Any, int]:
    """(ffi, the library, the process that loaded it)"""
    ffi = cffi.FFI()
    ffi.cdef(FUNCTIONS)
    path = str(library_path())
    try:
        return ffi, ffi.dlopen(path), os.getpid()
    except OSError as error:
        raise HarnessError(f"the bridge to Porcupine can't be loaded: {error}") from None


def _ask(
    encoded: EncodedHistory, time_limit_s: float | None, memory_limit_bytes: int | None
) -> Answer:
    ffi, lib, loaded_by = _library()
    if loaded_by != os.getpid():
        raise HarnessError("Porcupine was loaded before this process was forked: spawn it instead")

    def borrowed(array: npt.NDArray[np.int64]) -> Any:
        return ffi.from_buffer("int64_t[]", array)

    handle = lib.shalott_start(
        ffi.new("char[]", encoded.model.encode()),
        *(borrowed(encoded.options), len(encoded.options)),
        *(borrowed(encoded.rows), len(encoded.rows)),
        *(borrowed(encoded.values), len(encoded.values)),
        0 if time_limit_s is None else max(1, int(time_limit_s * 1e9)),
        0 if memory_limit_bytes is None else max(1, memory_limit_bytes),
    )
    try:
        numbers = ffi.new("int64_t[5]")
        while not lib.shalott_wait(handle, WAIT_NS, numbers):
            pass
        text = lib.shalott_text(handle)
        said = ffi.string(text).decode()
        lib.shalott_free(text)
        found, key, keys_decided, heap_bytes, row = numbers
        return Answer(found, key, keys_decided, heap_bytes, row, said)
    finally:
        lib.shalott_close(handle)


# Builds the bridge to Porcupine: the Go files of bridge/ and the module that go.mod names.
#
# They become one C library, which is built once, when it is first wanted, into build/porcupine of
# a checkout or else the user's cache. Its name is a digest of the sources, so a changed bridge is
# another file. ``scripts/setup porcupine`` and ``python -m shalott.checkers.porcupine.porcupine``
# build it ahead of time.

BRIDGE: Final = Path(__file__).resolve().with_name("bridge")
ROOT: Final = BRIDGE.parents[3]
TIMEOUT_S: Final = 600.0

NEEDED: Final = (
    "Porcupine takes Go 1.19 or newer and a C compiler to be built, once:"
    " apt-get install golang-go gcc"
)


def porcupine_version() -> str:
    """The version of Porcupine that go.mod names, as "1.3.1"."""
    found = re.search(r"anishathalye/porcupine v(\S+)", (BRIDGE / "go.mod").read_text())
    assert found, "go.mod names Porcupine"
    return found[1]


def library_path(tell: Callable[[str], object] = lambda sentence: None) -> Path:
    """The library, which is built if it is not there; ``tell`` hears of that, as it takes a while.

    Raises UsageError: Go or a C compiler is missing, or Go can't fetch Porcupine. Raises
    HarnessError: it does not compile.
    """
    path = _directory() / f"{_digest()}.so"
    if path.exists():
        return path
    go = shutil.which("go")
    if go is None or not (shutil.which("gcc") or shutil.which("cc")):
        raise UsageError(NEEDED)
    tell("building Porcupine, which takes a minute and is done once")
    _build(go, path)
    return path


def _directory() -> Path:
    if (ROOT / "pyproject.toml").exists():
        return ROOT / "build" / "porcupine"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shalott" / "porcupine"


def _digest() -> str:
    said = hashlib.sha256(sysconfig.get_platform().encode())
    for path in (*sorted(BRIDGE.glob("*.go")), BRIDGE / "go.mod", BRIDGE / "go.sum"):
        said.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        said.update(path.read_bytes())
    return said.hexdigest()[:16]


def _build(go: str, path: Path) -> None:
    fetched = _run(go, "mod", "download")
    if fetched.returncode != 0:
        raise UsageError(f"Go can't fetch Porcupine: {_last_line(fetched)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:  # cgo writes a header beside it
        made = Path(directory) / path.name
        built = _run(
            go, "build", "-buildmode=c-shared", "-buildvcs=false", "-trimpath", "-o", str(made), "."
        )
        if built.returncode != 0:
            raise HarnessError(f"Porcupine can't be built: {_last_line(built)}")
        made.replace(path)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CGO_ENABLED": "1", "GOWORK": "off"}
    try:
        return subprocess.run(
            command, cwd=BRIDGE, env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise HarnessError(f"{command[0]} {command[1]} took more than {TIMEOUT_S:.0f} s") from None


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{library_path()}\n")
    except ShalottError as error:
        sys.exit(f"shalott: {error}")
