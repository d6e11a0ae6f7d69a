"""Known bugs on the command line: what is listed, what is refused, and what a run remembers."""

from __future__ import annotations

import msgspec
import pytest

from shalott.broker.known_bugs import CATALOGUE
from shalott.core.errors import UsageError
from shalott.core.plan import Plan
from shalott.harness.cli.main import run_command
from shalott.harness.run.plan_checks import check_plan
from shalott.harness.run.planning import make_plan, repeat_command
from shalott.harness.run.request import Request

pytestmark = pytest.mark.unit


def plan_of(**flags: object) -> Plan:
    return make_plan(msgspec.convert(flags, Request), backend="local", seed=7)


def test_a_plan_holds_the_bugs_that_were_asked_for() -> None:
    plan = plan_of(bug=("KB-RMQ-24", "KB-RMQ-02", "KB-RMQ-24"), given={"startup-delay": "500ms"})
    assert plan.system.bugs == ("KB-RMQ-02", "KB-RMQ-24")
    assert plan.system.parameters["startup_delay_ms"] == 500
    assert plan_of().system.bugs == ()


def test_the_repeat_command_switches_them_on_again() -> None:
    request = Request(bug=("KB-RMQ-01", "KB-RMQ-02"), given={"startup-delay": "2s"})
    assert repeat_command(request, 3) == (
        "shalott test --bug KB-RMQ-01 --bug KB-RMQ-02 --startup-delay 2s --seed 3"
    )


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"bug": ("KB-RMQ-2",)}, "did you mean KB-RMQ-02"),
        ({"bug": ("nonsense",)}, "`shalott bugs` lists them"),
        ({"bug": ("KB-RMQ-02",), "system": "rabbitmq"}, "KB-RMQ-02"),
        ({"bug": ("KB-RMQ-02",), "system": "dledger"}, "KB-RMQ-02"),
        ({"given": {"startup-delay": "1s"}, "system": "rabbitmq"}, "is a parameter of mirrored"),
        ({"given": {"startup-delay": "soon"}}, "--startup-delay soon"),
    ],
)
def test_what_can_not_be_switched_on_is_refused(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        plan_of(**flags)


def test_a_stored_plan_with_an_unknown_bug_is_refused() -> None:
    plan = plan_of()
    system = msgspec.structs.replace(plan.system, bugs=("KB-RMQ-999",))
    with pytest.raises(UsageError, match="there is no known bug KB-RMQ-999"):
        check_plan(msgspec.structs.replace(plan, system=system))


def test_the_command_refuses_an_unknown_bug_in_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["test", "--bug", "KB-RMQ-3"]) == 254
    assert capsys.readouterr().err.startswith("shalott: there is no known bug KB-RMQ-3")
    assert run_command(["bugs", "kb-rmq-2"]) == 254
    assert "did you mean KB-RMQ-02?" in capsys.readouterr().err


def test_every_bug_is_listed_and_can_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["bugs"]) == 0
    listed = capsys.readouterr().out
    for bug in CATALOGUE:
        assert bug.id in listed
        assert run_command(["bugs", bug.id]) == 0
        told = capsys.readouterr().out
        assert bug.switch in told
        assert all(link in told for link in bug.links)
