"""Generators of the workload ``group``: sends with tags and delays, members that come and go, and
how a run of it ends.

Even threads send, odd ones have the members: an operation whose end is unknown retires its
process, and with it would go the members of its client. A single thread does both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shalott.core.generator import Answer, Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation
from shalott.core.queue_generator import COUNTER_BITS, RETRY_PAUSE_NS
from shalott.core.rng import draw_below, draw_float, draw_u64, stream_key

PASSES_WANTED = 2  # in a row that find no group behind
LOOK_PAUSE_NS = 500_000_000  # between two passes


def has_members(process: int, threads: int) -> bool:
    """Whether this process is of a thread that members are given to."""
    return process % threads % 2 == 1 or threads == 1


class SendMix(msgspec.Struct, frozen=True):
    """Sends for ever, as the seed draws them. ``levels``: of the delayed ones, from 1 on;
    ``timed``: the share of them that has one of ``timers_ms`` instead, which are levels from
    ``first_timer`` on to judges."""

    keys: tuple[str, ...]
    tags: tuple[str, ...]
    delayed: float
    levels: int
    timed: float
    timers_ms: tuple[int, ...]
    first_timer: int
    queue_key: int
    tag_key: int
    delay_key: int
    level_key: int
    timer_key: int
    value_base: int
    count: int = 0

    def next(self, context: Context) -> tuple[Answer, Generator]:
        count, extra = self.count, dict[str, object]()
        if self.tags:
            extra["tag"] = self.tags[draw_below(self.tag_key, count, len(self.tags))]
        if draw_float(self.delay_key, count) < self.delayed:
            extra |= self._delay(count)
        key = self.keys[draw_below(self.queue_key, count, len(self.keys))]
        invocation = Invocation(f="send", key=key, value=self.value_base + count, extra=extra)
        successor = msgspec.structs.replace(self, count=count + 1)
        return Scheduled(context.now_ns, invocation), successor

    def _delay(self, count: int) -> dict[str, object]:
        if draw_float(self.timer_key, count) >= self.timed:
            return {"delay": 1 + draw_below(self.level_key, count, self.levels)}
        number = draw_below(self.level_key, count, len(self.timers_ms))
        return {"delay": self.first_timer + number, "timer_ms": self.timers_ms[number]}

    def update(self, event: Completed) -> Generator:
        return self


class Idle(msgspec.Struct, frozen=True):
    """Nothing, for ever: to be limited."""

    def next(self, context: Context) -> tuple[Answer, Generator]:
        return Pending(), self

    def update(self, event: Completed) -> Generator:
        return self


def send_mix(
    keys: Sequence[str],
    tags: Sequence[str],
    *,
    delayed: float,
    levels: int,
    seed: int,
    timed: float = 0.0,
    timers_ms: Sequence[int] = (),
    first_timer: int = 0,
) -> SendMix:
    return SendMix(
        keys=tuple(keys),
        tags=tuple(tags),
        delayed=delayed,
        levels=levels,
        timed=timed,
        timers_ms=tuple(timers_ms),
        first_timer=first_timer,
        queue_key=stream_key(seed, "group", "key"),
        tag_key=stream_key(seed, "group", "tag"),
        delay_key=stream_key(seed, "group", "delay"),
        level_key=stream_key(seed, "group", "level"),
        timer_key=stream_key(seed, "group", "timer"),
        value_base=(draw_u64(stream_key(seed, "group", "run"), 0) >> 44) << COUNTER_BITS,
    )


class Churn(msgspec.Struct, frozen=True):
    """Members come, leave and die: first so many joins of each group, then one change after the
    other, ``mean_ns`` apart on average, 0 for none.

    ``held``: members by (thread, group), as far as operations came back; a thread can only end its
    own. No group grows beyond ``most``; one may have none for a while.
    """

    groups: tuple[str, ...]
    threads: int
    opening: tuple[str, ...]  # groups that members still join at the beginning
    most: int
    mean_ns: float
    die_fraction: float
    what_key: int
    die_key: int
    group_key: int
    gap_key: int
    count: int = 0
    due_ns: int = 0
    held: Mapping[tuple[int, str], int] = {}

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if self.opening:
            successor = msgspec.structs.replace(self, opening=self.opening[1:])
            return Scheduled(context.now_ns, Invocation(f="join", key=self.opening[0])), successor
        if not self.mean_ns:
            return Pending(), self
        gap_ns = int(draw_float(self.gap_key, self.count) * 2 * self.mean_ns)
        due_ns = max(self.due_ns, context.now_ns) + gap_ns
        invocation = self._change(context.process % self.threads)
        successor = msgspec.structs.replace(self, count=self.count + 1, due_ns=due_ns)
        return Scheduled(due_ns, invocation), successor

    def _change(self, thread: int) -> Invocation:
        """Of a group that the draw names: a member comes, unless there are enough and this thread
        can end one."""
        group = self.groups[draw_below(self.group_key, self.count, len(self.groups))]
        total = sum(count for (_, name), count in self.held.items() if name == group)
        drawn = draw_float(self.what_key, self.count)
        own = self.held.get((thread, group), 0)
        if own and (total >= self.most or drawn >= 0.5):
            dies = draw_float(self.die_key, self.count) < self.die_fraction
            return Invocation(f="die" if dies else "leave", key=group)
        if total >= self.most:
            return Invocation(f="leave", key=group)  # fails: others have its members
        return Invocation(f="join", key=group)

    def update(self, event: Completed) -> Generator:
        change = {"join": 1, "leave": -1, "die": -1}.get(event.invocation.f, 0)
        if not change or event.kind != "ok":
            return self
        place = (event.process % self.threads, event.invocation.key)
        held = {**self.held, place: max(0, self.held.get(place, 0) + change)}
        return msgspec.structs.replace(self, held=held)


def churn(
    groups: Sequence[str],
    *,
    members: int,
    mean_ms: float,
    die_fraction: float,
    threads: int,
    seed: int,
) -> Churn:
    """The members of one run: ``members`` of each group at its beginning, one more at most."""
    return Churn(
        groups=tuple(groups),
        threads=threads,
        opening=tuple(groups) * members,
        most=members + 1,
        mean_ns=mean_ms * 1e6,
        die_fraction=die_fraction,
        what_key=stream_key(seed, "group", "what"),
        die_key=stream_key(seed, "group", "die"),
        group_key=stream_key(seed, "group", "group"),
        gap_key=stream_key(seed, "group", "gap"),
    )


class Resets(msgspec.Struct, frozen=True):
    """Seldom the operator sets a group's offset in a queue, to its begin or to its end, and then
    sets up a topic and a group of his own. ``mean_ns`` 0: never."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]  # a group, and the keys of its queues
    mean_ns: float
    to_end_fraction: float
    which_key: int
    queue_key: int
    gap_key: int
    to_key: int
    count: int = 0
    due_ns: int | None = None
    sets_up: str = ""  # next, at the master of this key

    def due(self, now_ns: int) -> tuple[Invocation | None, Resets]:
        """What is due now."""
        if not self.mean_ns or not self.groups:
            return None, self
        if self.sets_up:
            invocation = Invocation(f="set-up", key=self.sets_up, value=self.count)
            return invocation, msgspec.structs.replace(self, sets_up="")
        gap_ns = int(draw_float(self.gap_key, self.count) * 2 * self.mean_ns)
        if self.due_ns is None:
            return None, msgspec.structs.replace(self, due_ns=now_ns + gap_ns, count=1)
        if now_ns < self.due_ns:
            return None, self
        name, keys = self.groups[draw_below(self.which_key, self.count, len(self.groups))]
        key = keys[draw_below(self.queue_key, self.count, len(keys))]
        to_end = draw_float(self.to_key, self.count) < self.to_end_fraction
        extra = {"group": name, "to": "end" if to_end else "begin"}
        successor = msgspec.structs.replace(
            self, due_ns=now_ns + gap_ns, count=self.count + 1, sets_up=key
        )
        return Invocation(f="reset", key=key, extra=extra), successor


def resets(
    groups: Mapping[str, Sequence[str]], *, mean_ms: float, to_end_fraction: float, seed: int
) -> Resets:
    """Of one run; ``groups``: the keys of each one's queues."""
    return Resets(
        groups=tuple((name, tuple(keys)) for name, keys in groups.items()),
        mean_ns=mean_ms * 1e6,
        to_end_fraction=to_end_fraction,
        which_key=stream_key(seed, "group", "reset"),
        queue_key=stream_key(seed, "group", "reset queue"),
        gap_key=stream_key(seed, "group", "reset gap"),
        to_key=stream_key(seed, "group", "reset to"),
    )


class GroupLoad(msgspec.Struct, frozen=True):
    """Threads that send take what ``sending`` gives them, and resets; the others ``churn``."""

    sending: Generator
    members: Churn
    operator: Resets
    threads: int

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if has_members(context.process, self.threads):
            opens = bool(self.members.opening)
            turn = opens or self.members.count * 8 < _sent(self.sending)
            if self.threads > 1 or turn:
                answer, members = self.members.next(context)
                assert isinstance(members, Churn)
                return answer, msgspec.structs.replace(self, members=members)
        invocation, operator = self.operator.due(context.now_ns)
        if invocation is not None:
            successor = msgspec.structs.replace(self, operator=operator)
            return Scheduled(context.now_ns, invocation), successor
        answer, sending = self.sending.next(context)
        return answer, msgspec.structs.replace(self, sending=sending, operator=operator)

    def update(self, event: Completed) -> Generator:
        members = self.members.update(event)
        sending = self.sending.update(event)
        return msgspec.structs.replace(self, members=members, sending=sending)


def _sent(sending: Generator) -> int:
    """How many sends a staggered generator has given out."""
    return int(getattr(sending, "count", 0))


class OnMembersThreads(msgspec.Struct, frozen=True):
    """Each invocation once, on the first thread with members that is free; or, ``everywhere``, on
    each of these threads. One that fails is done as well."""

    invocations: tuple[Invocation, ...]
    threads: int
    everywhere: bool = False
    done: Mapping[int, int] = {}  # by thread; all of them together, if not everywhere

    def next(self, context: Context) -> tuple[Answer, Generator]:
        thread, wanted = context.process % self.threads, len(self.invocations)
        own = thread if self.everywhere else 0
        members = [one for one in range(self.threads) if has_members(one, self.threads)]
        places = members if self.everywhere else [0]
        if all(self.done.get(place, 0) >= wanted for place in places):
            return None, self
        done = self.done.get(own, 0)
        if thread not in members or done >= wanted:
            return Pending(), self
        rest = msgspec.structs.replace(self, done={**self.done, own: done + 1})
        return Scheduled(context.now_ns, self.invocations[done]), rest

    def update(self, event: Completed) -> Generator:
        return self


class UntilConsumed(msgspec.Struct, frozen=True):
    """Ask again and again how far the groups are behind, until none was in two passes in a row.

    A look is done on one thread with members, or on all of them if it is one of those that only
    who has the members can answer (``everywhere``).
    """

    looks: tuple[tuple[Invocation, bool], ...]  # and whether everywhere
    threads: int
    open: tuple[tuple[int, int | None], ...] = ()  # of this pass: (look, thread; None: any)
    under_way: int = 0
    clean: bool = True  # so far in this pass
    passes: int = 0  # clean ones in a row
    not_before_ns: int = 0

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if self.passes >= PASSES_WANTED or not self.looks:
            return None, self
        if not has_members(context.process, self.threads):
            return Pending(), self
        this = self if self.open or self.under_way else self._next_pass()
        thread = context.process % self.threads
        for place, (look, of_thread) in enumerate(this.open):
            if of_thread is None or of_thread == thread:
                left = this.open[:place] + this.open[place + 1 :]
                successor = msgspec.structs.replace(this, open=left, under_way=this.under_way + 1)
                at_ns = max(context.now_ns, this.not_before_ns)
                return Scheduled(at_ns, this.looks[look][0]), successor
        return Pending(), this

    def _next_pass(self) -> UntilConsumed:
        members = [one for one in range(self.threads) if has_members(one, self.threads)]
        looks = tuple(
            (number, thread)
            for number, (_, everywhere) in enumerate(self.looks)
            for thread in (members if everywhere else (None,))
        )
        return msgspec.structs.replace(self, open=looks, clean=True)

    def update(self, event: Completed) -> Generator:
        if event.invocation.f != "lag" or not self.under_way:
            return self
        under_way = self.under_way - 1
        clean = self.clean and event.kind == "ok"
        left = self.open if clean else ()  # the rest of this pass would change nothing
        if left or under_way:
            return msgspec.structs.replace(self, under_way=under_way, clean=clean, open=left)
        return msgspec.structs.replace(
            self,
            open=(),
            under_way=0,
            clean=True,
            passes=self.passes + 1 if clean else 0,
            not_before_ns=event.now_ns + LOOK_PAUSE_NS,
        )


class AskAll(msgspec.Struct, frozen=True):
    """Each of these until it is ok."""

    left: tuple[Invocation, ...]
    not_before_ns: int = 0

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if not self.left:
            return Pending() if context.in_flight else None, self
        at_ns = max(context.now_ns, self.not_before_ns)
        return Scheduled(at_ns, self.left[0]), msgspec.structs.replace(self, left=self.left[1:])

    def update(self, event: Completed) -> Generator:
        if event.kind == "ok":
            return self
        again = (*self.left, event.invocation)
        return AskAll(again, event.now_ns + RETRY_PAUSE_NS)
