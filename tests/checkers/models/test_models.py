"""What each model allows, refuses and leaves alone; names, options and what is said about them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pytest

from shalott.checkers.history.column_values import MapPairs
from shalott.checkers.history.concurrent import FAILED, UNKNOWN, Operation, Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.checkers.models import (
    BUILT_IN,
    CasRegister,
    Counter,
    FencedLock,
    FifoQueue,
    KeyValue,
    Log,
    Model,
    MultiRegister,
    Mutex,
    OneOf,
    OwnedSemaphore,
    OwnerLock,
    PriorityQueue,
    ReentrantFencedLock,
    ReentrantLock,
    Register,
    Semaphore,
    Set,
    Stack,
    UnorderedQueue,
    make_model,
    meanings_of,
)
from shalott.checkers.models.locks import owned
from shalott.core.errors import UsageError

pytestmark = pytest.mark.unit

Step = tuple[Hashable, ...]


def after(model: Model, *steps: Step) -> Hashable:
    """The state after (f, argument, result, process) steps; None if one was refused."""
    state = model.init
    for step in steps:
        answer = model.step(state, Operation(*step))  # type: ignore[arg-type]
        assert not isinstance(answer, OneOf)
        if answer is None:
            return None
        state = answer
    return state


def allows(model: Model, *steps: Step) -> bool:
    return after(model, *steps) is not None


def test_register() -> None:
    assert allows(Register(), ("read", None, None), ("write", 1), ("read", None, 1))
    assert not allows(Register(), ("write", 1), ("read", None, 2))
    assert not allows(Register(), ("write", 1), ("read", None, None))
    assert allows(Register(nil="any"), ("write", 1), ("read", None, None))
    assert allows(Register(initial=7), ("read", None, 7))


def test_a_register_tells_true_from_one() -> None:
    assert not allows(Register(), ("write", True), ("read", None, 1))
    assert not allows(Register(), ("write", 1), ("read", None, 1.0))
    assert allows(Register(), ("write", 1.0), ("read", None, 1.0))


def test_cas_register() -> None:
    model = CasRegister(initial=0)
    assert allows(model, ("cas", (0, 1)), ("read", None, 1))
    assert not allows(model, ("cas", (1, 2)))
    assert allows(model, ("cas", (1, 2), FAILED), ("read", None, 0))
    assert not allows(model, ("cas", (0, 2), FAILED))
    assert not allows(model, ("cas", (0, 2), False))
    assert allows(model, ("cas", (0, 3), UNKNOWN), ("read", None, 3))
    with pytest.raises(ValueError, match="pair"):
        allows(model, ("cas", 3))


def test_failed_cas_may_be_ignored() -> None:
    checked, ignored = meanings_of(CasRegister()), meanings_of(CasRegister(failed_cas="ignored"))
    assert checked is not None and checked["cas"].failed
    assert ignored is not None and not ignored["cas"].failed


def test_multi_register() -> None:
    model = MultiRegister()
    assert allows(
        model,
        ("write", (("x", 1), ("y", 2))),
        ("read", None, (("y", 2), ("x", 1), ("z", None))),
        ("txn", None, (("r", "x", 1), ("w", "x", 3), ("r", "x", 3))),
        ("read", None, (("x", 3),)),
    )
    assert not allows(model, ("write", (("x", 1),)), ("read", None, (("x", None),)))
    assert allows(MultiRegister(nil="any"), ("write", (("x", 1),)), ("read", None, (("x", None),)))
    crashed = ("txn", (("w", "x", 1), ("r", "y", None)), UNKNOWN)
    assert allows(model, crashed, ("read", None, (("x", 1),)))
    with pytest.raises(ValueError, match="triples"):
        allows(model, ("txn", 1, 1))


@pytest.mark.parametrize(
    ("asked", "told", "is_so"),
    [
        ((("r", "y", None), ("w", "x", 1)), (("r", "y", None), ("w", "x", 1)), True),
        ((("read", "y", None), ("write", "x", 1)), (("r", "y", None), ("w", "x", 1)), True),
        ((("r", "y", None),), (("w", "y", 1),), False),
        ((("w", "x", 1),), (("w", "x", 2),), False),
        ((("w", "x", 1),), (("w", "y", 1),), False),
        ((("w", "x", 1),), (), False),
    ],
)
def test_a_transaction_that_did_what_nobody_asked_for(
    asked: tuple[object, ...], told: tuple[object, ...], is_so: bool
) -> None:
    """As it could do more than a crashed one, a prefix could be wrong and a longer one right."""
    assert allows(MultiRegister(), ("txn", asked, told)) is is_so


def test_key_value() -> None:
    assert allows(
        KeyValue(), ("get", None, ""), ("append", "a"), ("append", "b"), ("get", None, "ab")
    )
    assert not allows(KeyValue(), ("append", "a"), ("put", "b"), ("get", None, "ab"))
    assert after(KeyValue(initial=None), ("append", 1), ("append", 2)) == ((1, 2),)


def test_fifo_queue() -> None:
    puts = (("enqueue", 1), ("enqueue", 2))
    assert allows(FifoQueue(), *puts, ("dequeue", None, 1), ("dequeue", None, 2))
    assert not allows(FifoQueue(), *puts, ("dequeue", None, 2))
    assert allows(FifoQueue(), ("dequeue", None, None), ("enqueue", 1))
    assert not allows(FifoQueue(), ("enqueue", 1), ("dequeue", None, None))
    assert allows(FifoQueue(), *puts, ("dequeue", None, UNKNOWN), ("dequeue", None, 2))
    assert not allows(FifoQueue(), ("dequeue", None, UNKNOWN))


def test_unordered_queue() -> None:
    puts = (("enqueue", 1), ("enqueue", 2), ("enqueue", 2))
    twos = (("dequeue", None, 2), ("dequeue", None, 2))
    assert allows(UnorderedQueue(), *puts, *twos, ("dequeue", None, 1), ("dequeue", None, None))
    assert not allows(UnorderedQueue(), *puts, *twos, ("dequeue", None, 2))
    state = after(UnorderedQueue(), *puts)
    lost = UnorderedQueue().step(state, Operation("dequeue", None, UNKNOWN))
    assert isinstance(lost, OneOf)
    assert set(lost.states) == {frozenset({(2, 2)}), frozenset({(1, 1), (2, 1)})}


def test_log() -> None:
    assert allows(
        Log(),
        ("tail", None, 0),
        ("read", 0, None),
        ("append", "a", 0),
        ("append", "b", UNKNOWN),
        ("read", 1, "b"),
        ("tail", None, 2),
    )
    assert not allows(Log(), ("append", "a", 1))
    assert not allows(Log(), ("append", "a", 0), ("read", 0, None))
    with pytest.raises(ValueError, match="offset"):
        allows(Log(), ("read", None, 1))


def test_mutex_does_not_ask_who_releases() -> None:
    taken = (("acquire", None, None, 1), ("release", None, None, 2))
    assert allows(Mutex(), *taken)
    assert not allows(OwnerLock(), *taken)
    assert not allows(Mutex(), ("acquire",), ("acquire",))
    assert not allows(Mutex(), ("release",))


def test_locks_with_owners() -> None:
    again = (("acquire", None, None, 1), ("acquire", None, None, 1))
    assert not allows(OwnerLock(), *again)
    assert allows(ReentrantLock(), *again, ("release", None, None, 1), ("release", None, None, 1))
    assert not allows(ReentrantLock(limit=1), *again)
    assert not allows(ReentrantLock(), *again, ("release", None, None, 1), ("acquire", 0, 0, 2))


def test_tokens_of_a_fenced_lock_grow() -> None:
    def rounds(*tokens: Hashable) -> Sequence[Step]:
        return [
            step
            for token in tokens
            for step in (("acquire", None, token, 1), ("release", None, None, 1))
        ]

    assert allows(FencedLock(), *rounds(1, 5, 6))
    assert allows(FencedLock(), *rounds(1, UNKNOWN, None, 2))
    assert not allows(FencedLock(), *rounds(1, UNKNOWN, 1))
    assert not allows(FencedLock(), ("acquire", None, 1, 1), ("release", None, None, 2))


def test_reentrant_fenced_lock() -> None:
    def acquire(token: Hashable, process: int = 1) -> Step:
        return ("acquire", None, token, process)

    def release(process: int = 1) -> Step:
        return ("release", None, None, process)

    lock = ReentrantFencedLock()
    assert allows(lock, acquire(3), acquire(3), release(), release(), acquire(4, 2))
    assert allows(lock, acquire(UNKNOWN), acquire(3), acquire(None), acquire(3))
    assert not allows(lock, acquire(3), acquire(4))
    assert not allows(lock, acquire(3), release(), acquire(3))
    assert not allows(lock, acquire(3), acquire(3), release(), acquire(4, 2))
    assert not allows(lock, acquire(3), release(2))
    assert not allows(ReentrantFencedLock(limit=1), acquire(3), acquire(3))
    unknown = MapPairs([("fence", 0), ("client", "n1")])  # Hazelcast's invalid fence
    assert allows(lock, acquire(3), release(), acquire(unknown, 2), release(2), acquire(4))


def test_owned_semaphore() -> None:
    both = (("acquire", None, None, 1), ("acquire", None, None, 2))
    assert allows(OwnedSemaphore(2), *both, ("release", None, None, 1), ("acquire", 0, 0, 2))
    assert not allows(OwnedSemaphore(2), *both, ("acquire", None, None, 3))
    assert not allows(OwnedSemaphore(2), both[0], ("release", None, None, 2))


def test_owners_are_those_of_the_maps() -> None:
    """Of a client whose process crashed the next process is the same owner."""

    def named(owner: str, fence: int) -> MapPairs:
        return MapPairs([("client", owner), ("fence", fence)])

    rows = [
        Row(0, "acquire", "u1", named("n1", 1), 1, 2),
        Row(0, "release", "u2", None, 3, None),
        Row(5, "release", "u3", named("n1", 0), 4, 5),
        Row(1, "acquire", "u4", named("n2", 2), 6, 7),
        Row(8, "acquire", "u5", None, 8, None),
    ]
    assert owned(from_rows(rows)).process.tolist() == [0, 0, 0, 1, 8]
    for model in ("owner-lock", "fenced-lock", "reentrant-fenced-lock", "owned-semaphore"):
        assert check(from_rows(rows), model).valid is True, model
        stranger = rows[2]._replace(result=named("n2", 0))
        wrong = [rows[0], stranger, *rows[3:]]
        assert check(from_rows(wrong), model).valid is False, model


def test_semaphore() -> None:
    assert allows(Semaphore(3), ("acquire", 2), ("acquire",), ("release", 2), ("acquire", 1))
    assert not allows(Semaphore(3), ("acquire", 2), ("acquire", 2))
    assert not allows(Semaphore(3), ("release", 1))
    with pytest.raises(ValueError, match="permits"):
        allows(Semaphore(3), ("acquire", 0))


def test_set() -> None:
    assert allows(
        Set(),
        ("add", 1, True),
        ("add", 1, False),
        ("add", 2, None),
        ("read", None, (2, 1)),
        ("remove", 1, True),
        ("contains", 1, False),
        ("contains", 2, True),
    )
    assert not allows(Set(), ("add", 1, False))
    assert not allows(Set(), ("add", 1), ("read", None, ()))
    assert not allows(Set(), ("contains", 1, True))


def test_counter() -> None:
    assert allows(Counter(), ("inc",), ("inc", 4), ("dec", 2), ("read", None, 3))
    assert not allows(Counter(initial=1), ("read", None, 0))


def test_every_model_is_made_by_its_name() -> None:
    for name, built_in in BUILT_IN.items():
        model = make_model(name)
        assert isinstance(model, built_in)
        assert model == built_in()
        assert isinstance(model, Model)


def test_options() -> None:
    assert make_model("cas-register:initial=-3,nil=any") == CasRegister(initial=-3, nil="any")
    assert make_model("register:initial=nil") == Register()
    assert make_model("key-value:initial=") == KeyValue(initial="")
    assert make_model("register:initial=a=b") == Register(initial="a=b")
    assert make_model("semaphore:permits=5") == Semaphore(5)


@pytest.mark.parametrize(
    ("specification", "said"),
    [
        ("cas", "no model 'cas': there are register, cas-register, "),
        ("register:intial=3", "model register takes initial=..., nil=..., not 'intial=3'"),
        ("register:initial", "not 'initial'"),
        ("mutex:owner=1", "model mutex takes no options"),
        ("register:nil=maybe", "nil is value or any, not 'maybe'"),
        ("semaphore:permits=many", "permits is a number, not 'many'"),
    ],
)
def test_a_model_that_can_not_be_made_is_a_usage_error(specification: str, said: str) -> None:
    with pytest.raises(UsageError, match=".*") as raised:
        make_model(specification)
    assert said in str(raised.value)


def test_pure_meanings_and_operations_never_change_a_state() -> None:
    states = {
        "register": (1,),
        "cas-register": (1,),
        "log": ("a",),
        "set": frozenset({1}),
        "counter": 1,
    }
    for name, state in states.items():
        model = make_model(name)
        for meaning in (meanings_of(model) or {}).values():
            if meaning.pure:
                for result in (1, None, True, (1,), "a", UNKNOWN):
                    try:
                        answer = model.step(state, Operation(meaning.f, 0, result))
                    except ValueError:
                        continue
                    assert answer in (None, state)


def test_stack() -> None:
    assert allows(Stack(), ("push", 1), ("push", 2), ("pop", None, 2), ("pop", None, 1))
    assert not allows(Stack(), ("push", 1), ("push", 2), ("pop", None, 1))
    assert allows(Stack(), ("pop", None, None), ("push", 1))
    assert not allows(Stack(), ("push", 1), ("pop", None, None))
    assert after(Stack(), ("push", 1), ("push", 2), ("pop", None, UNKNOWN)) == (1,)
    assert not allows(Stack(), ("pop", None, UNKNOWN))


def test_priority_queue() -> None:
    three = (("enqueue", 1), ("enqueue", 3), ("enqueue", 2))
    assert allows(PriorityQueue(), *three, ("dequeue", None, 3), ("dequeue", None, 2))
    assert not allows(PriorityQueue(), *three, ("dequeue", None, 2))
    lowest = PriorityQueue(first="lowest")
    assert allows(lowest, *three, ("dequeue", None, 1), ("dequeue", None, 2))
    assert not allows(lowest, *three, ("dequeue", None, 3))
    assert not allows(lowest, *three, ("dequeue", None, None))
    pairs = (("enqueue", (5, "a")), ("enqueue", (1, "z")), ("enqueue", (5, "b")))
    for ties, allowed in (("any", True), ("fifo", False)):
        assert allows(PriorityQueue(ties=ties), *pairs, ("dequeue", None, (5, "b"))) is allowed
        assert allows(PriorityQueue(ties=ties), *pairs, ("dequeue", None, (5, "a")))
        assert not allows(PriorityQueue(ties=ties), *pairs, ("dequeue", None, (1, "z")))
    unknown = PriorityQueue().step(
        after(PriorityQueue(), *pairs), Operation("dequeue", None, UNKNOWN)
    )
    assert isinstance(unknown, OneOf) and len(unknown.states) == 2
    for value in ("high", True, (True, 1), ("high", 1)):
        with pytest.raises(ValueError, match="element is a number or a pair that begins with one"):
            PriorityQueue().step((), Operation("enqueue", value))
    with pytest.raises(UsageError, match="first is highest or lowest, not 'middle'"):
        make_model("priority-queue:first=middle")


def test_one_multiset_of_a_priority_queue_is_one_state() -> None:
    one = after(PriorityQueue(), ("enqueue", (1, "a")), ("enqueue", (1, "b")))
    other = after(PriorityQueue(), ("enqueue", (1, "b")), ("enqueue", (1, "a")))
    assert one == other
