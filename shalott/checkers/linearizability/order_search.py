"""Looks for an order of a few operations, and remembers how far each order went.

Just-in-time linearization (Lowe 2017) over a small window, in Python: return by return, the orders
(configurations: the state, which operations are in) that let the returning operation take effect
survive. Pure operations are put in as soon as the state allows it, which loses nothing; crashed
operations that are alike are used in the order of their calls. When no configuration is left, those
that the last step reached are the longest partial linearizations. The engine's search decides big
histories; this one tells about small ones, and gives up rather than take long.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from shalott.checkers.history.concurrent import FAILED, NEVER, Operation
from shalott.checkers.models import Model, OneOf, meanings_of, model_name, own_name
from shalott.core.errors import UsageError

State = Hashable
Configuration = tuple[State, int]  # the state, and a bit for each operation that took effect
StepOf = Callable[[State, Operation], tuple[State, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    row: int  # in the history that the window is from
    call: int
    ret: int  # NEVER: it crashed
    operation: Operation
    is_pure: bool = False  # it never changes the state
    is_open: bool = False  # called before the window: it may have taken effect before it, too


@dataclass(frozen=True, slots=True)
class Order:
    """A partial linearization: parts in order, and the state after each."""

    begin: State
    steps: tuple[tuple[int, State], ...]
    skipped: tuple[int, ...] = ()  # those that took effect before the window
    blocked: tuple[int, ...] = ()  # under way, and not possible next

    @property
    def state(self) -> State:
        return self.steps[-1][1] if self.steps else self.begin


@dataclass(frozen=True, slots=True)
class Found:
    """What the search saw. ``stuck`` is None if all returns were passed, or if it gave up."""

    stuck: int | None
    gave_up: bool = False
    orders: tuple[Order, ...] = ()  # none of them goes on; the longest first
    states: tuple[State, ...] = ()  # all that were possible when it got stuck

    @property
    def is_linearizable(self) -> bool | None:
        return None if self.gave_up else self.stuck is None


class ModelFailed(UsageError):
    """A foreign model raised, or has a state that is not hashable.

    The engine, which decides, may never have asked for what an explanation asks for.
    """


def step_of(model: Model) -> StepOf:
    """The model's transitions as tuples of next states, each asked once, or ModelFailed."""
    answers: dict[tuple[State, Operation], tuple[State, ...]] = {}

    def step(state: State, operation: Operation) -> tuple[State, ...]:
        asked = (state, operation)
        if asked not in answers:
            try:
                answer = model.step(state, operation)
                after = tuple(answer.states) if isinstance(answer, OneOf) else (answer,)
                answers[asked] = () if answer is None else after
                hash(after)
            except Exception as raised:
                if own_name(model):
                    raise ModelFailed(
                        f"{model_name(model)} can't read {operation.f}: {raised}"
                    ) from raised
                raise ModelFailed(
                    f"{model_name(model)} failed on {operation.f} in the state {state!r}:"
                    f" {type(raised).__name__}: {raised}"
                ) from raised
        return answers[asked]

    return step


def is_pure(model: Model, operation: Operation) -> bool:
    """Whether it never changes the state, as far as the model says so."""
    if operation.result is FAILED:
        return True
    says = getattr(model, "is_pure", None)
    if says is not None and says(operation):
        return True
    meanings = meanings_of(model)
    return meanings is not None and operation.f in meanings and meanings[operation.f].pure


@dataclass(slots=True)
class _Search:
    parts: Sequence[Part]
    step: StepOf
    left: int  # transitions it may still try
    parents: dict[Configuration, tuple[Configuration, int, bool] | None] = field(
        default_factory=dict
    )
    pending: list[int] = field(default_factory=list)
    crashed: int = 0  # a bit for each
    number: int = 0

    def next(self, configuration: Configuration) -> Iterable[tuple[Configuration, int, bool]]:
        """What may follow: (configuration, part, whether it was before the window)."""
        state, done = configuration
        seen: dict[Operation, None] = {}
        for at in self.pending:
            part = self.parts[at]
            if done >> at & 1:
                continue
            if part.ret == NEVER:
                if part.operation in seen:
                    continue
                seen[part.operation] = None
            self.left -= 1
            for after in self.step(state, part.operation):
                if part.ret == NEVER and after == state:
                    continue  # a crashed operation that changes nothing need not have happened
                yield (after, done | 1 << at), at, False
            if part.is_open and part.ret != NEVER:
                yield (state, done | 1 << at), at, True

    def with_pure(self, configuration: Configuration) -> Configuration:
        """The configuration after all pure operations that it allows."""
        for at in self.pending:
            part = self.parts[at]
            if not part.is_pure or configuration[1] >> at & 1:
                continue
            self.left -= 1
            fits = bool(self.step(configuration[0], part.operation))
            if fits or part.is_open:
                into = (configuration[0], configuration[1] | 1 << at)
                self.parents.setdefault(into, (configuration, at, not fits))
                configuration = into
        return configuration

    def pass_return(
        self, at: int, layer: Iterable[Configuration]
    ) -> tuple[dict[Configuration, None], dict[Configuration, None]]:
        """(the configurations with part ``at`` in, all that were met).

        Of two with the same state and the same completed operations, the one that used fewer
        crashed ones can do all that the other can: those are met first, and the others dropped.
        """
        passed: dict[Configuration, None] = {}
        met: dict[Configuration, None] = {}
        fewest: dict[Configuration, list[int]] = {}
        queue = [self.ranked(self.with_pure(each)) for each in layer]
        heapify(queue)
        while queue and self.left > 0:
            _, _, configuration = heappop(queue)
            state, done = configuration
            used = fewest.setdefault((state, done & ~self.crashed), [])
            if any(less & done == less for less in used):
                continue
            used.append(done & self.crashed)
            met[configuration] = None
            if done >> at & 1:
                passed[configuration] = None
                continue
            for into, part, skipped in self.next(configuration):
                if into not in self.parents:
                    self.parents[into] = (configuration, part, skipped)
                heappush(queue, self.ranked(self.with_pure(into)))
        return passed, met

    def ranked(self, configuration: Configuration) -> tuple[int, int, Configuration]:
        self.number += 1
        return (configuration[1] & self.crashed).bit_count(), self.number, configuration

    def order(self, configuration: Configuration) -> Order:
        steps: list[tuple[int, State]] = []
        skipped = []
        blocked = [
            at
            for at in self.pending
            if not configuration[1] >> at & 1
            and not self.step(configuration[0], self.parts[at].operation)
        ]
        while (parent := self.parents[configuration]) is not None:
            before, at, was_skipped = parent
            if was_skipped:
                skipped.append(at)
            else:
                steps.append((at, configuration[0]))
            configuration = before
        return Order(configuration[0], tuple(reversed(steps)), tuple(skipped), tuple(blocked))


def search(
    parts: Sequence[Part], starts: Iterable[State], step: StepOf, tries: int, most: int = 10
) -> Found:
    """Looks for an order of ``parts`` from any of ``starts``; tries so many transitions at most."""
    work = _Search(parts, step, tries)
    work.crashed = sum(1 << at for at, part in enumerate(parts) if part.ret == NEVER)
    layer = {(state, 0): None for state in starts}
    work.parents.update(dict.fromkeys(layer))
    events = sorted(
        [(part.call, at, True) for at, part in enumerate(parts)]
        + [(part.ret, at, False) for at, part in enumerate(parts) if part.ret != NEVER]
    )
    for _, at, is_call in events:
        if is_call:
            work.pending.append(at)
            continue
        passed, met = work.pass_return(at, layer)
        if work.left <= 0:
            return Found(None, gave_up=True)
        if not passed:
            return Found(
                at, False, _longest(work, met, most), tuple(dict.fromkeys(s for s, _ in met))
            )
        work.pending.remove(at)
        layer = passed
    return Found(None)


def _longest(work: _Search, met: Iterable[Configuration], most: int) -> tuple[Order, ...]:
    """The longest orders, at first one for each state that they end in."""
    completed = ~work.crashed
    by_length = sorted(met, key=lambda each: -(each[1] & completed).bit_count())
    first: dict[State, Configuration] = {}
    for configuration in by_length:
        first.setdefault(configuration[0], configuration)
    chosen = list(first.values())[:most]
    chosen += [each for each in by_length[: 4 * most] if each not in chosen][: most - len(chosen)]
    longest = max(((each[1] & completed).bit_count() for each in chosen), default=0)
    return tuple(
        work.order(each) for each in chosen if (each[1] & completed).bit_count() == longest
    )


def states_of(model: Model, operations: Iterable[Operation], most: int) -> list[State] | None:
    """All states that ``operations`` can lead to, in any order; None if more than ``most``."""
    step, kinds = step_of(model), list(dict.fromkeys(operations))
    states = {model.init: None}
    stack = list(states)
    while stack:
        state = stack.pop()
        for operation in kinds:
            for after in step(state, operation):
                if after not in states:
                    states[after] = None
                    stack.append(after)
        if len(states) > most:
            return None
    return list(states)
