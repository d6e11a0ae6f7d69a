"""What a model is: the sequential specification of one object.

A model is anything with an initial state and a step. States are hashable and never None. ``step``
is a pure function: it must not depend on anything but its arguments, because each (state,
operation) is asked once and its answer kept (checkers.linearizability).

What a model reads of an operation is said by ``meanings``, if it has them: arguments and results
that mean nothing are not told apart, crashed operations that change nothing are left out, and an
unknown f is an error that names the line instead of a wrong verdict.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from shalott.checkers.history.concurrent import Operation


@dataclass(frozen=True, slots=True)
class OneOf:
    """Several next states: a crashed operation with more than one outcome took one of them."""

    states: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one f means to a model, and what the model reads of such an operation."""

    f: str  # the name under which ``step`` sees it: aliases have one meaning
    argument: bool = False
    result: bool = False
    pure: bool = False  # never changes the state
    settles: bool = False  # its result says which of several changes it made
    failed: bool = False  # one that failed is an observation; other failed operations are dropped


@runtime_checkable
class Model(Protocol):
    """A sequential specification.

    May also have: ``name`` (default: the class's), ``meanings`` (f -> Meaning; default: every f,
    argument and result), ``by_process`` (True: ``step`` reads op.process), ``is_pure(op)`` (True:
    this one never changes the state, whatever its meaning says of others).
    """

    @property
    def init(self) -> Hashable: ...

    def step(self, state: Hashable, op: Operation) -> Hashable | OneOf | None:
        """The state after ``op`` took effect with its result; None if it can't have.

        A crashed operation's result is UNKNOWN: whatever it might have returned will do. A failed
        one is asked about only if its meaning says so; its result is FAILED.
        """
        ...


Meanings = Mapping[str, Meaning]


def aliases(*meanings: tuple[str, Meaning]) -> Meanings:
    """f names, separated by spaces, to their meaning."""
    return {name: meaning for names, meaning in meanings for name in names.split()}


def one_of(option: str, value: str, *allowed: str) -> None:
    """Refuses an option's value that is none of the ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{option} is {' or '.join(allowed)}, not {value!r}")
