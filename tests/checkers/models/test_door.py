"""Models of others: how they are found, made and refused, and that they judge."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shalott.checkers.history.concurrent import from_rows
from shalott.checkers.linearizability.checking import check
from shalott.checkers.linearizability.explain import explain, explain_verdict
from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.checkers.linearizability.timeline import timeline_body
from shalott.checkers.models import BUILT_IN, Register, make_model, model_name, own_name
from shalott.checkers.models.outside import MODELS
from shalott.checkers.monitors.monitor_choice import choose_monitor
from shalott.core.doors import load_module
from shalott.core.errors import UsageError
from tests.checkers.histories import Story
from tests.checkers.linearizability.test_linearizable import sequential
from tests.checkers.random_histories import mutated, random_history
from tests.plug_ins import PlugIns, plug_ins

pytestmark = pytest.mark.unit

__all__ = ["plug_ins"]

COUNTER = '''
from dataclasses import dataclass
from shalott.checkers.models import Mutex, Register

@dataclass(frozen=True)
class Wrapping:
    """Counts up to a limit, and begins again."""

    init: int = 0
    limit: int = 3

    def step(self, state, op):
        if op.f == "inc":
            return (state + 1) % self.limit
        return state if op.result in (None, state) else None
'''
MINE = "mine:Wrapping"

GOOD = sequential(*[("inc", None, None)] * 4, ("read", None, 1))
BAD = sequential(*[("inc", None, None)] * 4, ("read", None, 4))


def test_a_class_is_named_by_its_place(plug_ins: PlugIns) -> None:
    plug_ins.module("package.mine", COUNTER)
    model: Any = make_model("package.mine:Wrapping:limit=5,init=-2")
    assert (model.limit, model.init, model_name(model), own_name(model)) == (5, -2, "Wrapping", "")
    assert check(from_rows(GOOD), "package.mine:Wrapping").valid is True
    assert check(from_rows(BAD), "package.mine:Wrapping").valid is False
    assert check(from_rows(BAD), "package.mine:Wrapping:limit=5").valid is True


def test_a_loaded_module_offers_what_is_defined_in_it(plug_ins: PlugIns) -> None:
    plug_ins.module("mine", COUNTER)
    with pytest.raises(UsageError, match="no model 'Wrapping'"):
        make_model("Wrapping")
    load_module("mine")
    assert MODELS.names() == (*BUILT_IN, "Wrapping")  # and neither Register nor Mutex again
    assert MODELS.provider_of("Wrapping").how_to_get().startswith("give --load mine")
    assert check(from_rows(BAD), "Wrapping").valid is False
    assert check(from_rows(BAD), "Wrapping:limit=5").valid is True


def test_a_package_may_offer_what_its_modules_define(plug_ins: PlugIns) -> None:
    plug_ins.module("package.mine", COUNTER)
    plug_ins.module("package.__init__", "from package.mine import Wrapping")
    load_module("package")
    assert MODELS.has("Wrapping")


def test_our_own_come_through_the_door() -> None:
    assert MODELS.names()[: len(BUILT_IN)] == tuple(BUILT_IN)
    assert MODELS.find("register") is Register
    assert MODELS.requirement("register").provider == "shalott"


def test_an_installed_model_is_found_by_its_entry_point(plug_ins: PlugIns) -> None:
    plug_ins.module("acme", COUNTER.replace("init: int", 'name = "acme-counter"\n    init: int'))
    plug_ins.distribution("acme-models", "shalott.models", counter="acme:Wrapping")
    assert check(from_rows(BAD), "acme-counter").valid is False
    assert check(from_rows(BAD), "acme-counter:limit=5").valid is True
    needed = MODELS.requirement("acme-counter")
    assert (needed.provider, needed.version) == ("acme-models", "1.2")


def test_a_broken_plug_in_hinders_nobody_and_is_named_when_it_is_asked_for(
    plug_ins: PlugIns,
) -> None:
    plug_ins.module("acme", COUNTER)
    plug_ins.module("bad", "import no_such_library")
    plug_ins.module("script", "import sys\nsys.exit(0)")
    plug_ins.distribution("acme-models", "shalott.models", counter="acme:Wrapping")
    plug_ins.distribution("bad-models", "shalott.models", heap="bad:Heap", out="script:Model")
    plug_ins.distribution("odd-models", "shalott.models", odd="acme:COUNT", one="acme:dataclass")
    assert make_model("Wrapping").init == 0
    with pytest.raises(UsageError) as raised:
        make_model("heap")
    said = str(raised.value)
    assert said.startswith("no model 'heap': there are register, ") and "Wrapping, and" in said
    assert "bad-models's model heap can't be used: ModuleNotFoundError: No module named" in said
    assert "bad-models's model out can't be used: SystemExit: 0" in said
    assert "odd-models's entry point one of shalott.models is no model record" in said


def test_two_providers_of_one_name_are_refused(plug_ins: PlugIns) -> None:
    for name in ("one", "two"):
        plug_ins.module(name, COUNTER)
        plug_ins.distribution(f"dist-{name}", "shalott.models", counter=f"{name}:Wrapping")
    with pytest.raises(UsageError, match="Wrapping is provided by dist-one and by dist-two"):
        make_model("Wrapping")
    assert make_model("one:Wrapping").init == 0
    assert make_model("register") == Register()


def test_nobody_may_take_the_name_of_a_model_of_ours(plug_ins: PlugIns) -> None:
    plug_ins.module("mine", COUNTER.replace("init: int", 'name = "register"\n    init: int'))
    load_module("mine")
    with pytest.raises(UsageError, match="register is provided by shalott and by mine"):
        MODELS.names()


def test_a_protocol_or_what_lacks_a_step_is_not_offered(plug_ins: PlugIns) -> None:
    plug_ins.module(
        "mine",
        """
        from typing import Protocol

        class Shape(Protocol):
            init: int
            def step(self, state, op): ...

        class NoStep:
            init = 0

        class _Private:
            init = 0
            def step(self, state, op): ...
        """,
    )
    load_module("mine")
    assert MODELS.names() == tuple(BUILT_IN)


OPTIONS = """
def made(start: int = 0, *more):
    return Made(start)

class Made:
    def __init__(self, init: int, share: float = 0.5, is_on: bool = 0, word="x", text: str = ""):
        self.init, self.got = init, (share, is_on, word, text)

    def step(self, state, op):
        return state

READY = Made(7)
"""


def test_options_are_what_the_class_or_the_function_takes(plug_ins: PlugIns) -> None:
    plug_ins.module("mine", OPTIONS)
    model: Any = make_model("mine:Made:init=3,share=1.5,is_on=true,word=-4,text=-4")
    assert (model.init, model.got) == (3, (1.5, True, -4, "-4"))
    assert make_model("mine:made:start=4").init == 4
    assert make_model("mine:READY").init == 7


@pytest.mark.parametrize(
    ("specification", "said"),
    [
        ("mine:Made", "model mine:Made needs init=..."),
        ("mine:Made:init=x", "model mine:Made: init is a number, not 'x'"),
        ("mine:Made:init=1,share=x", "model mine:Made: share is a number, not 'x'"),
        ("mine:Made:init=1,is_on=2", "model mine:Made: is_on is true or false, not '2'"),
        ("mine:made:end=4", "model mine:made takes start=..., not 'end=4'"),
        ("mine:READY:init=1", "model mine:READY is made already and takes no options"),
        ("nowhere:Made", "--model nowhere:Made: ModuleNotFoundError: No module named 'nowhere'"),
        ("mine:Lost", "--model mine:Lost: mine has no Lost: there are Made"),
        ("mine.sub:Made", "--model mine.sub:Made: ModuleNotFoundError: No module named 'mine.sub'"),
        (":Made", "--model :Made: ValueError: Empty module name"),
    ],
)
def test_a_mistake_is_one_sentence(plug_ins: PlugIns, specification: str, said: str) -> None:
    plug_ins.module("mine", OPTIONS)
    with pytest.raises(UsageError) as raised:
        make_model(specification)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("pass", "mine:M is no model: it has no init and no step"),
        ("init = 0", "mine:M is no model: it has no step"),
        ("init = 0; step = 3", "mine:M is no model: its step is no method"),
        ("def step(self, state, op): ...", "mine:M is no model: it has no init"),
        ("init = None\n    def step(self, state, op): ...", "model mine:M: its init is None"),
        (
            "init = []\n    def step(self, state, op): ...",
            "model mine:M: unhashable type: 'list': its init must be hashable",
        ),
        (
            "init = property(lambda self: 1 / 0)\n    def step(self, state, op): ...",
            "model mine:M: its init failed: ZeroDivisionError: division by zero",
        ),
        (
            "init = 0\n    def __init__(self): {}['x']\n    def step(self, state, op): ...",
            "model mine:M can't be made: KeyError: 'x'",
        ),
        (
            "init = 0; meanings = 3\n    def step(self, state, op): ...",
            "model mine:M: its meanings are no mapping from an f to a Meaning",
        ),
        (
            "init = 0; meanings = {'get': 3}\n    def step(self, state, op): ...",
            "model mine:M: its meanings map 'get' to 3, no Meaning",
        ),
        (
            "init = 0; meanings = {'get': Meaning('read')}\n    def step(self, state, op): ...",
            "model mine:M: its meanings take get for read, and don't say what that is",
        ),
    ],
)
def test_what_is_no_model_says_what_it_lacks(plug_ins: PlugIns, body: str, said: str) -> None:
    text = f"from shalott.checkers.models import Meaning\nclass M:\n    {body}\n"
    plug_ins.module("mine", text)
    with pytest.raises(UsageError) as raised:
        make_model("mine:M")
    assert str(raised.value).startswith(said)


def test_a_class_in_place_of_a_model_is_refused() -> None:
    not_made: Any = Register
    with pytest.raises(UsageError, match=r"Register is a class: give a .* Register\(\)"):
        check(from_rows(GOOD), not_made)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("return state[0]", "model M failed on inc, index 0: TypeError: 'int' object is not"),
        ("return [state]", "unhashable type: 'list': a state must be hashable, such as a tuple"),
        ("raise SystemExit(0)", "model M failed on inc, index 0: SystemExit: 0"),
    ],
)
def test_a_step_that_fails_names_the_operation(plug_ins: PlugIns, step: str, said: str) -> None:
    plug_ins.module("mine", f"class M:\n    init = 0\n    def step(self, state, op): {step}\n")
    with pytest.raises(UsageError) as raised:
        check(from_rows(GOOD), "mine:M")
    assert said in str(raised.value)


def test_an_is_pure_that_fails_names_the_operation(plug_ins: PlugIns) -> None:
    plug_ins.module("mine", COUNTER + "\n    def is_pure(self, op): return op.no_such\n")
    with pytest.raises(UsageError, match="model Wrapping can't say whether inc of None is pure"):
        check(from_rows(GOOD), MINE)


# --- what is known of our own models only ---------------------------------------------------------

DERIVED = '''
from shalott.checkers.models import Register

class Forgetful(Register):
    """A read may return nothing, too."""

    def step(self, state, op):
        if op.f == "read" and op.result is None:
            return state
        return Register.step(self, state, op)

class Impostor:
    name = "register"
    init = "empty"

    def step(self, state, op):
        if op.f == "write":
            return f"full of {op.argument}"
        return state if state == f"full of {op.result}" else None
'''


def test_a_class_derived_from_ours_is_not_decided_by_our_monitor(plug_ins: PlugIns) -> None:
    """The monitor knows what a register does, and not what somebody has changed."""
    plug_ins.module("mine", DERIVED)
    rows = sequential(("write", 1, None), ("read", None, None))
    assert check(from_rows(rows), "register").valid is False
    verdict = check(from_rows(rows), "mine:Forgetful")
    assert verdict.valid is True and verdict.how.startswith("general search")
    assert choose_monitor(Register()) is not None
    assert choose_monitor(make_model("mine:Forgetful")) is None


def test_a_name_of_ours_does_not_lend_our_words(plug_ins: PlugIns) -> None:
    plug_ins.module("mine", DERIVED)
    rows = sequential(("write", 1, None), ("write", 2, None), ("read", None, 1))
    history = from_rows(rows)
    verdict = check(history, "mine:Impostor", find_prefix=True)
    explanation, _ = explain_verdict(history, verdict, make_model("mine:Impostor"))
    assert explanation.reason.endswith("returned when the object could only be 'full of 2'")
    assert "full of 2" in timeline_body(explanation, history)


def test_a_copy_of_a_model_of_ours_judges_as_ours_does(plug_ins: PlugIns) -> None:
    """Decided by other means: Python's step and the general search against the monitor."""
    plug_ins.module("mine", "from shalott.checkers.models import Register\nclass R(Register): ...")
    rng, model, seen = random.Random("a copy"), make_model("mine:R"), {True: 0, False: 0}
    for _ in range(150):
        history = from_rows(mutated(random_history("register", rng), rng))
        expected = check(history, "register").valid
        assert check(history, model).valid is expected
        assert isinstance(expected, bool)
        seen[expected] += 1
    assert min(seen.values()) > 20


# --- explanations and runs ------------------------------------------------------------------------


def test_a_model_that_fails_beyond_the_history_is_explained_nevertheless(
    plug_ins: PlugIns,
) -> None:
    """An explanation asks for states that no order of the history leads to."""
    plug_ins.module(
        "mine",
        """
        class Fragile:
            init = 0

            def step(self, state, op):
                if op.f == "inc" and state >= 2:
                    raise RuntimeError("never seen")
                if op.f == "inc":
                    return state + 1
                return state if state == op.result else None
        """,
    )
    history = from_rows(sequential(("inc", None, None), ("inc", None, None), ("read", None, 1)))
    explanation = explain(history, make_model("mine:Fragile"), stuck=2)
    assert explanation.is_proof
    assert explanation.reason.endswith("when the object could only be 2")
    assert timeline_body(explanation, history)


def test_a_model_that_fails_when_it_is_explained_leaves_the_verdict(plug_ins: PlugIns) -> None:
    plug_ins.module("mine", COUNTER)
    history = from_rows(BAD)
    verdict = check(history, MINE, find_prefix=True)

    class Failing:
        name, init = "Failing", 0

        def step(self, state: Any, op: Any) -> Any:
            raise RuntimeError("planted")

    explanation, own = explain_verdict(history, verdict, Failing())
    assert explanation.reason.startswith("when read of process")
    assert explanation.notes[0] == (
        "The model failed when a window was looked for:"
        " Failing failed on inc in the state 0: RuntimeError: planted."
    )
    assert timeline_body(explanation, own)


def stale() -> Story:
    story = Story()
    story.row("put", 1, value=1, process=0, took=0.1)
    story.row("put", 2, value=2, process=0, took=0.1)
    return story.row("get", 3, value=1, process=1, took=0.1)


NAMED = """
from shalott.checkers.models import Meaning

class Cell:
    init = 0
    meanings = {
        "get": Meaning("read", result=True, pure=True),
        "read": Meaning("read", result=True, pure=True),
        "put": Meaning("write", argument=True),
        "write": Meaning("write", argument=True),
    }

    def step(self, state, op):
        if op.f == "write":
            return op.argument
        return state if op.result == state else None
"""


@pytest.mark.parametrize("how", ["place", "loaded name", "object"])
def test_the_checker_of_runs_takes_a_model_of_somebody_elses(plug_ins: PlugIns, how: str) -> None:
    plug_ins.module("mine", NAMED)
    if how == "loaded name":
        load_module("mine")
    model = {"place": "mine:Cell", "loaded name": "Cell"}.get(how) or make_model("mine:Cell")
    judge = Linearizability(model=model, fs=("get", "put"))
    result = judge.check(stale().history())
    assert result.valid is False
    assert result.detail["model"] == ("mine:Cell" if how == "place" else "Cell")
    (drawn,) = result.detail["linearizability"]
    assert drawn["model"] == "Cell" and drawn["fs"] == ("get", "put")
    assert "could only be 2" in drawn["reason"]
