"""A bank: transfers move money between accounts, and every read shows the same total.

A read shows all accounts at one moment. A system without snapshots shows money twice, or not at
all. (jepsen.tests.bank; snapshot isolation in Berenson et al., SIGMOD 1995.)

What is not told is taken from the history: the total that most reads show, and as accounts those
that transfers name or that most reads show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.passes import (
    Case,
    Operation,
    conclude,
    fields_of,
    judge_objects,
    same,
)
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.shape import LIST, MAP, PAIR, Shape

Number = int | float
_BROKEN: Final = ("wrong-total", "nil-balance", "negative-value", "unexpected-key")


@dataclass(frozen=True, slots=True)
class Bank:
    """transfer {:from :to :amount}, read -> {account balance}: the balances add up to one total.

    ``total``: what they add up to; nil: what most reads show. ``negative_balances``: whether an
    account may be overdrawn. ``accounts``: their number (0, 1, ...), or their names, separated by
    spaces; nil: those that the history uses.
    """

    name: ClassVar[str] = "bank"

    total: int | None = None
    negative_balances: bool = False
    accounts: int | str | None = None

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=BANK.fs, asks=("read",),
            begin=lambda case: _Accounts(case, self), conclude=self._conclude,
        )  # fmt: skip

    @property
    def expected(self) -> frozenset[str] | None:
        """The accounts, as texts: in JSON a number that is a key is a string."""
        if self.accounts is None:
            return None
        if isinstance(self.accounts, int):
            return frozenset(map(str, range(self.accounts)))
        return frozenset(self.accounts.split())

    def _conclude(self, case: Case) -> Result:
        reads = case.counts["read-count"]
        if not reads:
            case.doubts.append("The accounts were never read.")
        return conclude(
            self.name,
            case,
            headline=f"{reads:,} reads of the accounts all showed the same total",
            words={
                "wrong-total": (
                    "1 read of the accounts showed another total: {summary}",
                    "{n} reads of the accounts showed another total: {summary}",
                ),
                "negative-value": ("an account was overdrawn", "{n} reads showed a debt"),
                "nil-balance": ("an account had no balance", "{n} reads showed no balance"),
                "unexpected-key": (
                    "an account came from nowhere",
                    "{n} reads showed accounts from nowhere",
                ),
            },
            broken=_BROKEN,
        )


@dataclass(slots=True)
class _Total:
    """One sum that reads showed."""

    reads: int = 0
    first: list[tuple[int, Hashable]] = field(default_factory=list)  # places and values


@dataclass(slots=True)
class _Accounts:
    case: Case
    bank: Bank
    named: set[Hashable] = field(default_factory=set)  # by transfers
    shown: Counter[Hashable] = field(default_factory=Counter)  # by how many reads
    first: dict[Hashable, Operation] = field(default_factory=dict)  # the read that first shows it
    totals: dict[Number, _Total] = field(default_factory=dict)
    reads: int = 0

    def take(self, op: Operation) -> None:
        if op.f == "transfer":
            asked = fields_of(op.argument) or {}
            self.named.update(same(asked[end]) for end in ("from", "to") if end in asked)
            return
        if op.type != "ok":
            return
        balances = balances_of(op.result)
        if balances is None:
            self.case.counts["unreadable-read-count"] += 1
            return
        self.reads += 1
        for account in balances:
            self.shown[account] += 1
            self.first.setdefault(account, op)
        self._look(op, balances)

    def _look(self, op: Operation, balances: dict[Hashable, Hashable]) -> None:
        case = self.case
        numbers = [each for each in balances.values() if isinstance(each, int | float)]
        if len(numbers) < len(balances):
            if case.found("nil-balance"):
                without = [key for key, each in balances.items() if each is None]
                case.tell(
                    "nil-balance",
                    f"the read at {case.at(op.place)} shows no balance of account"
                    f" {case.listed(without, len(without))}: {case.shown(op.result)}",
                    op.place,
                )
            return
        kept = self.totals.setdefault(sum(numbers), _Total())
        kept.reads += 1
        if len(kept.first) < 16:
            kept.first.append((op.place, op.result))
        if min(numbers, default=0) >= 0 or self.bank.negative_balances:
            return
        if case.found("negative-value"):
            debts = [
                account
                for account, each in balances.items()
                if isinstance(each, int | float) and each < 0
            ]
            case.tell(
                "negative-value",
                f"the read at {case.at(op.place)} shows a debt of account"
                f" {case.listed(debts, len(debts))}: {case.shown(op.result)}",
                op.place,
            )

    def end(self) -> None:
        self.case.counts["read-count"] += self.reads
        if unreadable := self.case.counts.pop("unreadable-read-count", 0):
            self.case.notes.append(f"{unreadable:,} reads returned no accounts and were left out.")
        self._judge_totals()
        self._judge_keys()

    def _judge_totals(self) -> None:
        case, total = self.case, self.bank.total
        if total is None and self.totals:
            total, most = max(self.totals.items(), key=lambda each: each[1].reads)  # type: ignore[assignment]
            case.notes.append(
                f"{case.of_key}The total was not told: {total}, which {most.reads:,} of"
                f" {self.reads:,} reads show, is taken for it."
            )
        wrong = {sum_: kept for sum_, kept in self.totals.items() if sum_ != total}
        for sum_, kept in sorted(wrong.items(), key=lambda each: each[1].first[0][0]):
            for at in range(kept.reads):
                if case.found("wrong-total") and at < len(kept.first):
                    place, value = kept.first[at]
                    case.tell(
                        "wrong-total",
                        f"the read at {case.at(place)} shows {sum_} in all where {total} should"
                        f" be: {case.shown(value)}",
                        place,
                        total=sum_,
                    )
        if len(wrong) > 1:
            case.notes.append(f"{case.of_key}Totals from {min(wrong)} to {max(wrong)} were read.")

    def _judge_keys(self) -> None:
        case, expected = self.case, self.bank.expected
        for account, times in self.shown.items():
            if expected is not None:
                is_odd = str(account) not in expected
            else:
                is_odd = account not in self.named and times * 2 <= self.reads
            if not is_odd:
                continue
            op = self.first[account]
            case.counts["unexpected-key-count"] += times - 1
            if case.found("unexpected-key") or len(case.kept) < 64:
                why = "is none of the accounts"
                if expected is None:
                    why = f"is in {times:,} of {self.reads:,} reads and in no transfer"
                case.tell(
                    "unexpected-key",
                    f"the read at {case.at(op.place)} shows account {case.shown(account)}, which"
                    f" {why}: {case.shown(op.result)}",
                    op.place,
                )


def balances_of(value: Hashable) -> dict[Hashable, Hashable] | None:
    """A map, a vector of [account balance], or a vector of balances, whose accounts are 0, 1, ..;
    None: no such thing."""
    fields = fields_of(value)
    if fields is not None:
        return fields
    if not isinstance(value, tuple) or not value:
        return None
    if all(isinstance(each, tuple) and len(each) == 2 for each in value):
        return {same(each[0]): each[1] for each in value}
    if all(each is None or isinstance(each, int | float) for each in value):
        return dict(enumerate(value))
    return None


def _wants(shape: Shape) -> bool:
    return shape.has("transfer", "read") and bool(shape.result("read") & {MAP, LIST, PAIR})


BANK = JudgeRecord(
    name="bank",
    summary="every read of all accounts shows the same total",
    make=Bank,
    promise="Every read shows the same total of all balances, and no account without a balance,"
    " overdrawn, or unknown.",
    source="jepsen.tests.bank; Berenson et al., A Critique of ANSI SQL Isolation Levels, 1995",
    fs=("transfer", "read"),
    wants=_wants,
)
