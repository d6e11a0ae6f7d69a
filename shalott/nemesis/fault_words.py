"""What ``--fault`` says of the faults of one kind, in place of what a schedule draws. Pure.

    KIND:WORD=VALUE[,WORD=VALUE]    such as corrupt-files:files=jetstream/**/*.blk,amount=16

A word is ``amount``, ``target``, or a parameter of the fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shalott.core.errors import UsageError
from shalott.core.parameters import parse_values
from shalott.core.plan import Values
from shalott.nemesis.record import FaultRecord, members
from shalott.nemesis.targets import check_target

EXAMPLE = "give KIND:WORD=VALUE, such as corrupt-files:files=*.log,amount=16,down=true"


@dataclass(frozen=True, slots=True)
class Told:
    """``amount`` 0, ``target`` "": not told."""

    amount: float = 0
    target: str = ""
    parameters: Values = field(default_factory=dict)

    def over(self, other: Told) -> Told:
        """Both, this one where they differ."""
        return Told(
            self.amount or other.amount,
            self.target or other.target,
            {**other.parameters, **self.parameters},
        )


def parse_fault(text: str) -> tuple[str, Told]:
    """(the kind, or a group of kinds; what is told of it). Raises UsageError."""
    kind, colon, rest = text.partition(":")
    if not colon or not rest:
        raise UsageError(f"--fault {text}: {EXAMPLE}")
    told = Told()
    for record in members(kind.strip()):
        told = parse_words(record, rest.split(","), f"--fault {text}")
    return kind.strip(), told


def parse_words(record: FaultRecord, words: Sequence[str], where: str) -> Told:
    """WORD=VALUE each. Raises UsageError, which begins with ``where``."""
    told, given = Told(), {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not value:
            raise UsageError(f"{where}: {word!r} is no WORD=VALUE; {EXAMPLE}")
        if name == "target":
            told = replace(told, target=value)
        elif name == "amount":
            told = replace(told, amount=_amount(record, value, where))
        else:
            given[name] = value
    try:
        return replace(told, parameters=parse_values(record.parameters, given))
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _amount(record: FaultRecord, value: str, where: str) -> float:
    if record.amount is None:
        raise UsageError(f"{where}: {record.name} has no amount")
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{where}: the amount {value!r} is no number") from None


def told_of(words: Sequence[str], nodes: Sequence[str]) -> dict[str, Told]:
    """By kind or group. Raises UsageError."""
    found: dict[str, Told] = {}
    for text in words:
        kind, told = parse_fault(text)
        if told.target:
            check_target(told.target, nodes)
        found[kind] = told.over(found.get(kind, Told()))
    return found
