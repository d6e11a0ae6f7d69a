"""Which rules each known bug breaks, and that switches are read by rules only."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from shalott.broker.known_bugs import CATALOGUE
from shalott.broker.rabbit.amqp.confirms import BENIGN_ENDS, ConfirmRules, confirm_rules
from shalott.broker.rabbit.mirrored.bug_rules import (
    MasterRules,
    OperatorRules,
    ProcessRules,
    SupervisorRules,
    master_rules,
    operator_rules,
    process_rules,
    supervisor_rules,
)
from tests.tidy.sources import ROOT, Source, parse

pytestmark = pytest.mark.unit

HasBug = Callable[[str], bool]

# factory, what it makes by default, and by bug the fields that differ from that
TABLES: tuple[tuple[Callable[[HasBug], Any], Any, Mapping[str, tuple[str, ...]]], ...] = (
    (
        confirm_rules,
        ConfirmRules(),
        {
            "KB-RMQ-24": ("needs_recorded_master", "waits_for_rows", "settling_ends"),
            "OUR-01": ("needs_recorded_master", "discounts_unsynchronised"),
            "OUR-08": ("waits_for_rows",),
            "OUR-09": ("waits_for_rows",),
        },
    ),
    (
        process_rules,
        ProcessRules(),
        {
            "KB-RMQ-01": ("survives_missing_supervisors",),
            "KB-RMQ-02": ("checks_place_on_policy", "stops_own_mirrors_only"),
            "KB-RMQ-08": (
                "checks_place_on_newcomers",
                "checks_place_on_policy",
                "expects_other_masters",
            ),
            "KB-RMQ-11": ("yields_as_loss",),
            "KB-RMQ-13": ("records_survivors",),
            "KB-RMQ-22": ("obeys_promote_on_failure",),
            "KB-RMQ-38": ("ends_mark_own_row_only",),
        },
    ),
    (
        master_rules,
        MasterRules(),
        {"OUR-02": ("confirms_wait_for_ring",), "KB-RMQ-29": ("tells_requeued",)},
    ),
    (
        supervisor_rules,
        SupervisorRules(),
        {
            "KB-RMQ-02": ("recovers_current_row", "replaces_pending_only", "tells_displaced"),
            "KB-RMQ-20": ("restart_adds_mirrors",),
            "KB-RMQ-37": ("looks_at_orderly_ends",),
            "KB-RMQ-04": ("tells_displaced",),
            "KB-RMQ-06": ("tells_displaced",),
            "KB-RMQ-08": ("tells_displaced",),
            "KB-RMQ-10": ("tells_displaced",),
            "KB-RMQ-13": ("tells_displaced",),
        },
    ),
    (
        operator_rules,
        OperatorRules(),
        {"KB-RMQ-21": ("deletes_without_master",), "KB-RMQ-25": ("maintenance_leaves_masters",)},
    ),
)
FACTORIES = pytest.mark.parametrize(
    ("factory", "sound", "broken_by"), TABLES, ids=[factory.__name__ for factory, _, _ in TABLES]
)


def differing(rules: Any, sound: Any) -> tuple[str, ...]:
    names = [field.name for field in dataclasses.fields(sound)]
    return tuple(name for name in names if getattr(rules, name) != getattr(sound, name))


@FACTORIES
def test_without_bugs_every_rule_holds(
    factory: Callable[[HasBug], Any], sound: Any, broken_by: Mapping[str, tuple[str, ...]]
) -> None:
    assert factory(lambda bug: False) == sound
    flags = [getattr(sound, field.name) for field in dataclasses.fields(sound)]
    assert all(flag is True or flag == ("normal",) for flag in flags)


@FACTORIES
def test_each_bug_breaks_its_own_rules_and_no_other(
    factory: Callable[[HasBug], Any], sound: Any, broken_by: Mapping[str, tuple[str, ...]]
) -> None:
    for bug in CATALOGUE:
        rules = factory(lambda asked, bug=bug: asked == bug.id)
        assert differing(rules, sound) == broken_by.get(bug.id, ()), bug.id
    assert broken_by.keys() <= {bug.id for bug in CATALOGUE}


@FACTORIES
def test_every_rule_is_broken_by_some_bug(
    factory: Callable[[HasBug], Any], sound: Any, broken_by: Mapping[str, tuple[str, ...]]
) -> None:
    broken = {name for names in broken_by.values() for name in names}
    assert broken == {field.name for field in dataclasses.fields(sound)}


def test_before_3_8_0_every_benign_end_settled_a_publish() -> None:
    assert confirm_rules(lambda bug: bug == "KB-RMQ-24").settling_ends == BENIGN_ENDS


# -- where switches are read -----------------------------------------------------------------------


def inline_switches(source: Source) -> Iterator[str]:
    """Places that ask for a bug instead of a rule."""
    if source.path.endswith(("_rules.py", "/bugs.py")):
        return
    for node in ast.walk(source.tree):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_call and node.func.attr == "has_bug":  # type: ignore[attr-defined]
            yield f"{source.path}:{node.lineno}: make a rule of it"  # type: ignore[attr-defined]


def test_queues_and_channels_read_switches_in_rules_only() -> None:
    rooms = ("amqp", "gm", "mirrored", "queue_process", "replica", "supervision")
    folders = [ROOT / "shalott/broker/rabbit" / room for room in rooms]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    sources = [parse(path.relative_to(ROOT).as_posix(), path.read_text()) for path in files]
    assert len(sources) > 50
    found = [line for source in sources for line in inline_switches(source)]
    assert not found, "\n" + "\n".join(found)


def test_a_switch_that_is_read_inline_is_found() -> None:
    text = "def f(env):\n    if env.has_bug('KB-RMQ-01'):\n        raise ValueError\n"
    assert list(inline_switches(parse("shalott/broker/rabbit/queue_process/starting.py", text)))
    assert not list(inline_switches(parse("shalott/broker/rabbit/mirrored/bug_rules.py", text)))
    handed_on = "def f(env):\n    return process_rules(env.has_bug)\n"
    assert not list(
        inline_switches(parse("shalott/broker/rabbit/queue_process/starting.py", handed_on))
    )
