"""What the engine's readers found wrong with a file, as one sentence that begins with the line."""

from __future__ import annotations

from typing import Any, Final

from shalott.checkers.engine import ffi, lib

# {word}: what was met; {id}: the process or the operation; {other}: the invocation's line.
_SENTENCES: Final[dict[int, str]] = {
    lib.SHL_READ_UNEXPECTED: "this can't stand here",
    lib.SHL_READ_MISMATCHED: "a bracket is closed by one of another kind",
    lib.SHL_READ_TOO_DEEP: "more than 128 brackets within each other",
    lib.SHL_READ_ODD_MAP: "a map has a key without a value",
    lib.SHL_READ_NO_MAP: "no operation stands here",
    lib.SHL_READ_CUT_LINE: "the line ends within an operation",
    lib.SHL_READ_UNCLOSED: (
        "the operation that begins in line {other} is not closed: a bracket or a quote is missing"
        " or there is one too many"
    ),
    lib.SHL_READ_COMMENTED: (
        "an operation stands in a comment or a discarded form: take the line out of the file if it"
        " is not meant"
    ),
    lib.SHL_READ_ODD_LINE: (
        "the line has parts of an operation, but is none, or is two: process, type, f and value of"
        " one are wanted"
    ),
    lib.SHL_READ_NEMESIS_F: ("process -1 is the nemesis, but does {word}, which clients do, too"),
    lib.SHL_READ_NO_PROCESS: "an operation without a process",
    lib.SHL_READ_NO_TYPE: "an operation without a type",
    lib.SHL_READ_NO_F: "an operation without an f",
    lib.SHL_READ_BAD_PROCESS: "a process is a number or :nemesis, not {word}",
    lib.SHL_READ_BAD_TYPE: "a type is {types}, not {word}",
    lib.SHL_READ_BAD_F: "an f is a word, not {word}",
    lib.SHL_READ_BAD_TIME: "a time is a number of nanoseconds, not {word}",
    lib.SHL_READ_NOT_KEYED: "the history is keyed, but a value is no [key value]: {word}",
    lib.SHL_READ_NO_INDEX: "an operation without an index",
    lib.SHL_READ_TOO_MANY: "more operations or lines than can be counted (2^30)",
}
_BY_PROCESS: Final[dict[int, str]] = {
    lib.SHL_READ_INVOKED_TWICE: (
        "process {id} invokes an operation while the one that it invoked in line {other} is open"
    ),
    lib.SHL_READ_NOT_INVOKED: "process {id} completes an operation, but has none open",
    lib.SHL_READ_OTHER_F: (
        "process {id} completes {word}, but what it invoked in line {other} is something else"
    ),
    lib.SHL_READ_OTHER_KEY: (
        "process {id} completes an operation on key {word}, but what it invoked in line {other} is"
        " on another"
    ),
}
_BY_NUMBER: Final[dict[int, str]] = {
    lib.SHL_READ_INVOKED_TWICE: "operation {id} is invoked again, after line {other}",
    lib.SHL_READ_NOT_INVOKED: "operation {id} completes, but is not open",
    lib.SHL_READ_OTHER_F: "operation {id} completes as {word}; line {other} says something else",
    lib.SHL_READ_OTHER_KEY: "operation {id} completes on key {word}; line {other} is on another",
}
_TYPES: Final = {
    "shalott": "invoke, ok, fail or info",
    "violin": "call or return",
}


def complaint(state: Any, dialect: str) -> str:
    """``line 12, column 3: what is wrong``."""
    numbered = _BY_NUMBER if dialect in ("shalott", "violin") else _BY_PROCESS
    sentence = numbered.get(state.error) or _SENTENCES[state.error]
    if dialect == "violin" and state.error == lib.SHL_READ_BAD_PROCESS:
        sentence = "an operation is a number in brackets, not {word}"
    met = ffi.string(state.error_word).decode("utf-8", errors="backslashreplace")
    word = "".join(each if each.isprintable() else " " for each in met)
    if state.error == lib.SHL_READ_BAD_TIME and not word:
        sentence = "an operation without a time"
    said = sentence.format(
        word=word,
        id=state.error_id,
        other=state.error_other,
        types=_TYPES.get(dialect, ":invoke, :ok, :fail or :info"),
    )
    return f"line {state.error_line}, column {state.error_column}: {said}"
