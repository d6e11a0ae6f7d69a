"""Histories as text, and what the tests of readers look at."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

import numpy as np

from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory, Row, from_rows
from shalott.checkers.reading import read_history

TYPES = ("ok", "fail", "info")
Seen = tuple[int, str, Hashable, Hashable, str, int, int | None, str]


def read_text(directory: Path, text: str | bytes, name: str = "history", **how: object) -> object:
    """Reads ``text`` from a file in ``directory``."""
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_history(path, **how)  # type: ignore[arg-type]


def seen(history: ConcurrentHistory) -> list[Seen]:
    """(process, f, argument, result, type, call, ret or None, key) of each operation."""
    return [
        (
            int(history.process[row]),
            history.f.names[history.f.codes[row]],
            history.argument.get(row),
            history.result.get(row),
            TYPES[history.type[row]],
            int(history.call[row]),
            None if history.ret[row] == NEVER else int(history.ret[row]),
            history.key.names[history.key.codes[row]],
        )
        for row in range(len(history))
    ]


def as_jepsen_has_it(history: ConcurrentHistory) -> ConcurrentHistory:
    """Every completion with its invocation's value, unless it found something out."""
    given = ("write", "put", "cas", "enqueue", "add")
    rows = [
        Row(0, f, argument, argument if repeats else result, 2 * at, 2 * at + 1)
        for at, (_, f, argument, result, kind, *_) in enumerate(seen(history))
        for repeats in [kind == "fail" or (kind == "ok" and result is None and f in given)]
    ]
    return replace(history, result=from_rows(rows).result)


def is_whole(history: ConcurrentHistory) -> bool:
    """What every ConcurrentHistory promises of itself."""
    n = len(history)
    returned = history.ret[history.ret != NEVER]
    ranks = np.sort(np.concatenate([history.call, returned]))
    columns = (history.f.codes, history.key.codes, history.argument, history.result, history.type,
               history.process, history.ret, history.place)  # fmt: skip
    codes_fit = all(
        not n or (words.codes.min() >= 0 and words.codes.max() < len(words.names))
        for words in (history.f, history.key)
    )
    forms_fit = all(
        not (values.kind == 2).any() or values.number[values.kind == 2].max() < len(values.forms)
        for values in (history.argument, history.result)
    )
    return bool(
        all(len(column) == n for column in columns)
        and (ranks == np.arange(len(ranks))).all()
        and (np.diff(history.call) > 0).all()
        and (history.ret > history.call).all()
        and ((history.type != 2) | (history.ret == NEVER)).all()
        and codes_fit
        and forms_fit
    )
