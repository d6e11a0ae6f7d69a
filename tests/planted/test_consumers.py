"""The planted defects of consumers' code fit the sources as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from shalott.checkers.consumers.consume_rules import ConsumeRules
from shalott.checkers.consumers.consumer_checkers import consumer_checkers
from shalott.checkers.groups.group_checkers import group_checkers
from shalott.checkers.groups.group_rules import GroupRules
from tests.planted.consumers import MUTANTS
from tests.planted.consumers_shape import ConsumerMutant

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]


def test_names_are_unique_and_checkers_exist() -> None:
    names = {
        "consume": [each.name for each in consumer_checkers(ConsumeRules(queues=()))],
        "group": [
            each.name for each in group_checkers(GroupRules(groups=(), queues=(), levels_ms=()))
        ],
    }
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 24
    for mutant in MUTANTS:
        assert mutant.checkers
        assert [name for name in mutant.checkers if name not in names[mutant.workload]] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_it_replaces_is_there_once_and_what_comes_of_it_compiles(
    mutant: ConsumerMutant,
) -> None:
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.file) or (ROOT / edit.file).read_text()
        texts[edit.file] = edit.applied_to(text)
    for file, text in texts.items():
        assert file.startswith("shalott/broker/")
        compile(text, file, "exec")
