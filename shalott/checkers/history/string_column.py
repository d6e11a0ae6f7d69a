"""A string column as small integers (dictionary encoding): each distinct string is kept once.

It stands by itself, without Arrow, so that a history of text is read without loading it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice  # which rows of a column


@dataclass(slots=True)  # not frozen: see checkers.history.concurrent
class Words:
    """A string column: ``names[codes[i]]`` is row i's string; a null is ""."""

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...]

    def equal(self, name: str) -> npt.NDArray[np.bool_]:
        if name not in self.names:
            return np.zeros(len(self.codes), dtype=np.bool_)
        return np.asarray(self.codes == self.names.index(name))

    def among(self, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        wanted = [code for code, name in enumerate(self.names) if name in names]
        return np.asarray(np.isin(self.codes, wanted))

    def __getitem__(self, rows: Rows) -> Words:
        return self.take(rows)

    def take(self, rows: Rows) -> Words:
        return Words(self.codes[rows], self.names)
