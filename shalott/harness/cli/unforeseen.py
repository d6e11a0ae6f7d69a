"""What is said of an exception that has no sentence of its own, and where its traceback is kept.

1 means Invalid, so Python's own way to end, a traceback and exit code 1, may happen to no command.
"""

from __future__ import annotations

import os
import sysconfig
import time
import traceback
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from shalott.core.doors import GROUPS

MAX_BYTES = 1_000_000  # of the file with tracebacks, which then begins anew


def sentence_about(error: BaseException, arguments: Sequence[str]) -> str:
    """Names the class of the error and the line of whose code failed, and the file of
    tracebacks, to which its own is added."""
    where, owner = _origin(error)
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{owner} failed: {_shortened(what)} ({where}); {_kept(error, arguments)}"


def sentence_about_file(error: OSError, arguments: Sequence[str]) -> str:
    """Of a file that the command line names, or that lies below it, and that is not such a one as
    the command needs; "" if it is about another file."""
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    typed = {value for word in arguments for value in (word, word.partition("=")[2])} - {""}
    is_typed = any(name == value or name.startswith(value.rstrip("/") + "/") for value in typed)
    return _shortened(f"{name}: {error.strerror}") if is_typed else ""


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def _origin(error: BaseException) -> tuple[str, str]:
    """The deepest line that is Shalott's or a plug-in's, and which of them it is."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if owner := _owner(Path(frame.filename)):
            return f"{frame.filename}, line {frame.lineno}", owner
    return "no line is known", "the harness"


def _owner(file: Path) -> str:
    """Who wrote it, as a sentence begins: "" for Python and for libraries."""
    own = Path(__file__).parents[2]
    if file.is_relative_to(own):
        return "the harness"
    if not file.is_absolute() or file.is_relative_to(sysconfig.get_path("stdlib")):
        return ""
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        if file.is_relative_to(place):
            package = file.relative_to(place).parts[0].removesuffix(".py")
            return f"the plug-in {package}" if package in set(_plugins()) else ""
    return f"the plug-in {file.stem if file.stem != '__init__' else file.parent.name}"


def _plugins() -> Iterator[str]:
    for distribution in metadata.distributions():
        for point in distribution.entry_points:
            if point.group.startswith(GROUPS):
                yield point.module.partition(".")[0]


def _kept(error: BaseException, arguments: Sequence[str]) -> str:
    """Adds the traceback to the user's file of them, and says where that is."""
    head = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} shalott {' '.join(arguments)}\n"
    text = head + "".join(traceback.format_exception(error)) + "\n"
    file = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state", "shalott", "errors.log")
    try:
        file = file.expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        is_full = file.exists() and file.stat().st_size > MAX_BYTES
        with file.open("w" if is_full else "a", encoding="utf-8", errors="replace") as opened:
            opened.write(text)
    except (OSError, RuntimeError) as failure:
        return f"its traceback could not be written to {file}: {failure}"
    return f"its traceback is in {file}"
