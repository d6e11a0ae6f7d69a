"""Filters by SQL92 over the properties of a message (filter/parser/SelectorParser).

    price BETWEEN 1 AND 5 AND color IN ('red', 'blue') OR NOT (name IS NULL)

A property that is not there is NULL, and so is what is compared with it: neither true nor false. A
property is text; beside a number it is one if it looks like one, and NULL if not. Text has no
order: only = and <> compare it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from shalott.broker.base.errors import BrokerError

Value = str | float | bool | None
Term = Callable[[Mapping[str, str]], Value]

DEPTH_MAX = 64
TOKENS_MAX = 500
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)"
    r"|(?P<name>[A-Za-z_$][\w$.]*)|(?P<sign><>|<=|>=|[=<>(),+-]))"
)
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_TEXT_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": lambda text, part: text.startswith(part),
    "ENDSWITH": lambda text, part: text.endswith(part),
}
_WORDS = ("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", *_TEXT_TESTS)


class BadExpression(BrokerError):
    """Text that is no filter."""


def parse(text: str) -> Term:
    """What a filter makes of a message's properties: it is wanted if that is True. Raises
    BadExpression."""
    tokens: list[tuple[str, str]] = []
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadExpression(f"what is {text[at:].strip()[:20]!r}?")
        kind = str(found.lastgroup)
        word = found[kind]
        if kind == "name" and word.upper() in _WORDS:
            kind, word = "word", word.upper()
        tokens.append((kind, word))
        at = found.end()
        if len(tokens) > TOKENS_MAX:
            raise BadExpression(f"it has more than {TOKENS_MAX} words")
    return _Parser(tokens).whole()


class _Parser:
    """By descent: OR, AND, NOT, a test, a value."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Term:
        term = self._or()
        if self._at < len(self._tokens):
            raise BadExpression(f"{self._tokens[self._at][1]!r} is not expected")
        return lambda properties: _truth(term(properties))

    def _take(self, *words: str) -> str:
        """The next token if it is one of these signs or words; else ""."""
        if self._at < len(self._tokens):
            kind, word = self._tokens[self._at]
            if kind in ("sign", "word") and word in words:
                self._at += 1
                return word
        return ""

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise BadExpression(f"{word} is missing")

    def _or(self) -> Term:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadExpression("too many brackets")
        term = self._and()
        while self._take("OR"):
            term = _either(term, self._and(), decides=True)
        self._depth -= 1
        return term

    def _and(self) -> Term:
        term = self._not()
        while self._take("AND"):
            term = _either(term, self._not(), decides=False)
        return term

    def _not(self) -> Term:
        negations = 0
        while self._take("NOT"):
            negations += 1
        term = self._test()
        return _negated(term) if negations % 2 else term

    def _test(self) -> Term:
        left = self._value()
        if sign := self._take("=", "<>"):
            equal = _equal(left, self._value())
            return equal if sign == "=" else _negated(equal)
        if sign := self._take(*_ORDERS):
            return _ordered(sign, left, self._value())
        if self._take("IS"):
            negated = bool(self._take("NOT"))
            self._need("NULL")
            return lambda properties: (left(properties) is None) != negated
        negated = bool(self._take("NOT"))
        term = self._range_or_list(left)
        if term is None and negated:
            raise BadExpression("NOT is not expected")
        if term is None:
            return left
        return _negated(term) if negated else term

    def _range_or_list(self, left: Term) -> Term | None:
        if self._take("BETWEEN"):
            low = self._value()
            self._need("AND")
            high = self._value()
            return _either(_ordered(">=", left, low), _ordered("<=", left, high), decides=False)
        if self._take("IN"):
            self._need("(")
            term = _equal(left, self._value())
            while self._take(","):
                term = _either(term, _equal(left, self._value()), decides=True)
            self._need(")")
            return term
        if word := self._take(*_TEXT_TESTS):
            return _tested(_TEXT_TESTS[word], left, self._value())
        return None

    def _value(self) -> Term:
        if self._take("("):
            term = self._or()
            self._need(")")
            return term
        sign = -1.0 if self._take("-") else 1.0
        if self._at >= len(self._tokens):
            raise BadExpression("something is missing at the end")
        kind, word = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            number = sign * float(word)
            return lambda properties: number
        if sign < 0:
            raise BadExpression("a number should follow -")
        if kind == "text":
            text = word[1:-1].replace("''", "'")
            return lambda properties: text
        if kind == "name":
            return lambda properties: properties.get(word)
        if word in ("TRUE", "FALSE"):
            return lambda properties: word == "TRUE"
        raise BadExpression(f"{word!r} is not expected")


def _truth(value: Value) -> bool | None:
    """Of a property too: text that says it."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else None


def _number(value: Value) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except ValueError:
        return None


def _negated(term: Term) -> Term:
    def test(properties: Mapping[str, str]) -> Value:
        value = _truth(term(properties))
        return None if value is None else not value

    return test


def _either(left: Term, right: Term, *, decides: bool) -> Term:
    """OR, which True decides, or AND, which False decides; NULL where neither is known to."""

    def test(properties: Mapping[str, str]) -> Value:
        one, other = _truth(left(properties)), _truth(right(properties))
        if one is decides or other is decides:
            return decides
        return None if one is None or other is None else not decides

    return test


def _equal(left: Term, right: Term) -> Term:
    def test(properties: Mapping[str, str]) -> Value:
        one, other = left(properties), right(properties)
        if one is None or other is None:
            return None
        if isinstance(one, bool) or isinstance(other, bool):
            truths = _truth(one), _truth(other)
            return None if None in truths else truths[0] == truths[1]
        if isinstance(one, float) or isinstance(other, float):
            first, second = _number(one), _number(other)
            return None if first is None or second is None else first == second
        return one == other

    return test


def _ordered(sign: str, left: Term, right: Term) -> Term:
    def test(properties: Mapping[str, str]) -> Value:
        one, other = _number(left(properties)), _number(right(properties))
        return None if one is None or other is None else _ORDERS[sign](one, other)

    return test


def _tested(holds: Callable[[str, str], bool], left: Term, right: Term) -> Term:
    def test(properties: Mapping[str, str]) -> Value:
        text, part = left(properties), right(properties)
        if not isinstance(text, str) or not isinstance(part, str) or not part:
            return None if text is None else False
        return holds(text, part)

    return test
