"""Functions that no search enters, and their reasons."""

from __future__ import annotations

import pytest

from shalott.harness.search import unentered
from shalott.harness.search.probes import feature
from shalott.harness.search.unentered import covers, is_below, names_of, reach_of
from shalott.harness.search.unentered_reasons import REASONS, Reason

pytestmark = pytest.mark.unit

MODULE = "rocket.autoswitch.epochs"


def seen(*names: str) -> set[int]:
    return {feature(f"shalott.broker.{name}") for name in names}


def every_name() -> list[str]:
    return [name for _, _, names in unentered.functions() for name in names]


def test_what_no_run_came_to_is_listed() -> None:
    found = reach_of(seen(MODULE, f"{MODULE}:without_suffix"), "controller/safe")
    assert found.unentered and all(name.startswith(f"{MODULE}:") for name in found.unentered)
    assert f"{MODULE}:without_suffix" not in found.unentered
    assert not found.outdated


def test_what_has_a_reason_is_counted_and_a_reason_that_does_not_hold_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Reason("It is so.", f"{MODULE}:without_suffix|of_epoch", but=("dledger/safe",))
    monkeypatch.setattr(unentered, "REASONS", (here,))
    entered = seen(MODULE, f"{MODULE}:without_suffix")
    found = reach_of(entered, "controller/safe")
    assert found.explained == 1 and f"{MODULE}:of_epoch" not in found.unentered
    assert found.outdated == (f"{MODULE}:without_suffix",)
    elsewhere = reach_of(entered, "dledger/safe")
    assert not elsewhere.explained and not elsewhere.outdated


def test_every_reason_is_a_sentence_about_functions_that_there_are() -> None:
    functions = every_name()
    for reason in REASONS:
        assert reason.why.endswith(".") and len(reason.why.split()) > 4
        for name in names_of(reason):
            assert any(is_below(each, name) for each in functions), f"there is no {name}"


def test_a_function_has_one_reason() -> None:
    for function in every_name():
        found = [reason.why for reason in REASONS if covers(reason, function)]
        assert len(found) < 2, (function, found)
