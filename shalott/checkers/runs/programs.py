"""Clients that are programs: how often one died, stalled or talked nonsense, as a note.

Each such operation is ``info``, or ``fail`` where it had not been written to the program yet
(clients/programs), so a verdict does not depend on what clients do. But a run whose clients keep
breaking has tried little, and its user should look at the client first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.checker import Result
from shalott.checkers.history.columns import client_operations
from shalott.core.errors import CLIENT_PROGRAM
from shalott.core.history import History

TOLD_MAX = 3


@dataclass(frozen=True, slots=True)
class Programs:
    name: str = "client-programs"

    def check(self, history: History) -> Result:
        ops = client_operations(history)
        blamed = {name: 0 for name in ops.error.names if name.startswith(CLIENT_PROGRAM)}
        for name in blamed:
            blamed[name] = int(np.count_nonzero(ops.error.equal(name)))
        count = sum(blamed.values())
        often = sorted(blamed, key=lambda name: -blamed[name])[:TOLD_MAX]
        notes = [
            f"{blamed[name]} × {name.removeprefix(CLIENT_PROGRAM).lstrip(': ')}" for name in often
        ]
        return Result(
            checker=self.name,
            valid=True,
            counts={"client-program-error-count": count},
            notes=(
                f"The client's program broke {count} times, which is no verdict: "
                + "; ".join(notes)
                + (f"; and {len(blamed) - TOLD_MAX} other ways" if len(blamed) > TOLD_MAX else "")
                + ".",
            )
            if count
            else (),
        )
