"""Which monitor decides a model's histories, where one can."""

from __future__ import annotations

from shalott.checkers.models import (
    CasRegister,
    Counter,
    FencedLock,
    FifoQueue,
    KeyValue,
    Log,
    Model,
    Mutex,
    OwnerLock,
    PriorityQueue,
    ReentrantLock,
    Register,
    Semaphore,
    Set,
    Stack,
    UnorderedQueue,
    own_name,
)
from shalott.checkers.monitors.counter_monitor import CounterMonitor
from shalott.checkers.monitors.lock_monitor import (
    FENCED_LOCK,
    OWNER_LOCK,
    MutexMonitor,
    SemaphoreMonitor,
    reentrant_lock,
)
from shalott.checkers.monitors.log_monitor import LogMonitor
from shalott.checkers.monitors.monitor import Monitor
from shalott.checkers.monitors.queue_conditions import (
    BAG_CONDITIONS,
    FIFO_CONDITIONS,
    STACK_CONDITIONS,
    priority_conditions,
)
from shalott.checkers.monitors.queue_monitor import BAG, FIFO
from shalott.checkers.monitors.register_monitor import RegisterMonitor
from shalott.checkers.monitors.set_conditions import SetConditions
from shalott.checkers.monitors.set_monitor import SetMonitor
from shalott.checkers.monitors.turn_monitor import STACK, PriorityMonitor


def choose_monitor(model: Model) -> Monitor | None:
    """The monitor for a built-in model; None if it has none, as a foreign model.

    A class that is derived from a built-in one may do other things: no monitor knows them.
    """
    if not own_name(model):
        return None
    match model:
        case Register(initial, nil):
            return RegisterMonitor(initial, nil)
        case CasRegister(initial, nil, failed_cas):
            return RegisterMonitor(initial, nil, failed_cas)
        case KeyValue(initial):  # a register, for histories without append
            return RegisterMonitor(initial)
        case ReentrantLock(limit):
            return reentrant_lock(limit)
        case Semaphore(permits):
            return SemaphoreMonitor(permits)
        case PriorityQueue(first, ties):
            return PriorityMonitor(first, ties)
        case Counter(initial):
            return CounterMonitor(initial)
    return _WITHOUT_OPTIONS.get(type(model))


def choose_conditions(model: Model) -> Monitor | None:
    """What is looked at before a search for a built-in model; None: there is nothing."""
    if not own_name(model):
        return None
    if isinstance(model, PriorityQueue):
        return priority_conditions(model.first)
    return _CONDITIONS.get(type(model))


def wants_distinct(model: Model) -> bool:
    """Whether its monitor passes over what writes a value twice."""
    distinct = (
        Register | CasRegister | KeyValue | FifoQueue | UnorderedQueue | Stack | PriorityQueue
    )
    return bool(own_name(model)) and isinstance(model, distinct)


_WITHOUT_OPTIONS: dict[type, Monitor] = {
    FifoQueue: FIFO,
    UnorderedQueue: BAG,
    Stack: STACK,
    Set: SetMonitor(),
    Log: LogMonitor(),
    Mutex: MutexMonitor(),
    OwnerLock: OWNER_LOCK,
    FencedLock: FENCED_LOCK,
}

_CONDITIONS: dict[type, Monitor] = {
    FifoQueue: FIFO_CONDITIONS,
    UnorderedQueue: BAG_CONDITIONS,
    Stack: STACK_CONDITIONS,
    Set: SetConditions(),
}
