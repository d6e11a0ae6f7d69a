"""A register with compare-and-set. A cas is one number: 10 * what must be there + what to put."""

from collections.abc import Hashable

from shalott.api import (
    UNKNOWN,
    Operation,
)


class PackedCasRegister:
    init = (None,)

    def step(self, state: Hashable, op: Operation) -> Hashable:
        if op.f == "read":
            return state if op.result is UNKNOWN or state == (op.result,) else None
        required, value = divmod(int(str(op.argument)), 10)
        return (value,) if op.f == "write" or state == (required,) else None
