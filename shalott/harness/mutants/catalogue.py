"""Every mutant there is: what was written by hand, and what the operators make of the core.

The core of a system is what its promise rests on: who leads, what counts as replicated, what is on
the disk. What only serves clients or tells people is left out.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from shalott.core.errors import UsageError
from shalott.harness.mutants.by_hand import BY_HAND
from shalott.harness.mutants.controller import CONTROLLER
from shalott.harness.mutants.controller_features import CONTROLLER_FEATURES
from shalott.harness.mutants.dledger import DLEDGER
from shalott.harness.mutants.master_slave import MASTER_SLAVE
from shalott.harness.mutants.mirrored import MIRRORED
from shalott.harness.mutants.mirrored_features import MIRRORED_FEATURES
from shalott.harness.mutants.mutant import (
    Function,
    Mutant,
    functions_of,
    parse_module,
    source_path,
)
from shalott.harness.mutants.operators import OPERATORS, OperatorChange
from shalott.harness.mutants.transactions import TRANSACTIONS

# Modules and packages below shalott.broker.
CORE: Mapping[str, tuple[str, ...]] = {
    "mirrored": (
        *("rabbit.gm", "rabbit.replica", "rabbit.queue_process", "rabbit.storage"),
        *("rabbit.mirrored.rows", "rabbit.metadata", "base.journal"),
    ),
    "master-slave": ("rocket.ha", "rocket.commitlog"),
    "dledger": ("raft", "rocket.dledger"),
    "controller": ("rocket.autoswitch", "rocket.controller", "rocket.replicas"),
}
WRITTEN: tuple[Mutant, ...] = (
    *(*MIRRORED, *MIRRORED_FEATURES, *MASTER_SLAVE),
    *(*DLEDGER, *CONTROLLER, *CONTROLLER_FEATURES, *TRANSACTIONS),
)
KINDS = (BY_HAND, *OPERATORS)


def find_mutants(system: str = "", pattern: str = "", kind: str = BY_HAND) -> tuple[Mutant, ...]:
    """Those of a system, of a kind ("": of each), whose name has ``pattern`` in it, or matches it
    as a file's name does. Raises UsageError if there is none."""
    if system and system not in CORE:
        raise UsageError(f"--system {system}: there are mutants of {', '.join(CORE)}")
    if kind and kind not in KINDS:
        raise UsageError(f"--operator {kind}: there are {', '.join(KINDS)}")
    wildcard = pattern if any(each in pattern for each in "*?[") else f"*{pattern}*"
    found = tuple(
        mutant
        for mutant in _all_of(kind)
        if system in ("", mutant.system) and fnmatch.fnmatchcase(mutant.name, wildcard)
    )
    if not found:
        raise UsageError(f"there is no such mutant: {pattern or kind}")
    return found


def drawn(mutants: Sequence[Mutant]) -> tuple[Mutant, ...]:
    """In an order that their names draw, so that those measured first are a sample of all."""
    return tuple(
        sorted(mutants, key=lambda one: hashlib.blake2b(one.name.encode(), digest_size=8).digest())
    )


def _all_of(kind: str) -> Iterator[Mutant]:
    if kind in ("", BY_HAND):
        yield from WRITTEN
    for operator in OPERATORS:
        if kind in ("", operator):
            for system in CORE:
                for module in core_modules(system):
                    yield from _made(system, module, operator)


def core_modules(system: str) -> Iterator[str]:
    for name in CORE[system]:
        path = source_path(name)
        if path.name != "__init__.py":
            yield name
            continue
        for each in sorted(path.parent.rglob("*.py")):
            inner = each.relative_to(path.parent).with_suffix("").parts
            if inner[-1] != "__init__":
                yield ".".join((name, *inner))


@cache
def _functions(module: str) -> Mapping[str, Function]:
    """To look at only: what is changed is parsed anew."""
    return functions_of(parse_module(module))


def _made(system: str, module: str, operator: str) -> Iterator[Mutant]:
    for function, node in _functions(module).items():
        for number, splice in enumerate(OPERATORS[operator](node)):
            yield Mutant(
                system=system,
                module=module,
                function=function,
                operator=operator,
                which=str(number + 1),
                breaks=f"{function} {splice.breaks}",
                change=OperatorChange(operator, number),
            )
