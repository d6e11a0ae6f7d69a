"""Scenarios: every known bug's and every loss window's, by id.

``shalott search --bug ID`` and ``--scenario ID`` run one (harness/search/scenarios/scenario.py says
what it is); tests/planted/ runs them all, and each must find nothing of its anomaly with ``sound``
in place of it (the switch off, or the setting that closes the window).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from shalott.core.errors import UsageError
from shalott.harness.search.scenarios.controller import CONTROLLER_BUGS, CONTROLLER_WINDOWS
from shalott.harness.search.scenarios.dledger import DLEDGER_BUGS, DLEDGER_WINDOWS
from shalott.harness.search.scenarios.master_slave import MASTER_SLAVE_BUGS, MASTER_SLAVE_WINDOWS
from shalott.harness.search.scenarios.masters import MASTER_BUGS
from shalott.harness.search.scenarios.own import OWN_RULES
from shalott.harness.search.scenarios.queues import QUEUE_BUGS
from shalott.harness.search.scenarios.ring import RING_BUGS
from shalott.harness.search.scenarios.scenario import Scenario
from shalott.harness.search.scenarios.windows import LOSS_WINDOWS

# One entry for each known bug: the ids are those of broker/known_bugs.py.
KNOWN_BUGS: tuple[Scenario, ...] = (
    *MASTER_BUGS,
    *RING_BUGS,
    *QUEUE_BUGS,
    *OWN_RULES,
    *CONTROLLER_BUGS,
    *DLEDGER_BUGS,
    *MASTER_SLAVE_BUGS,
)
WINDOWS: tuple[Scenario, ...] = (
    *LOSS_WINDOWS,
    *CONTROLLER_WINDOWS,
    *DLEDGER_WINDOWS,
    *MASTER_SLAVE_WINDOWS,
)

SCENARIOS: Mapping[str, Scenario] = {scenario.id: scenario for scenario in (*KNOWN_BUGS, *WINDOWS)}


def scenario_of(scenario_id: str) -> Scenario:
    """Raises UsageError, naming near ids or all."""
    if scenario_id in SCENARIOS:
        return SCENARIOS[scenario_id]
    near = difflib.get_close_matches(scenario_id.upper(), SCENARIOS, n=3, cutoff=0.7)
    advice = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"there are {', '.join(sorted(SCENARIOS))}"
    )
    raise UsageError(f"there is no scenario {scenario_id}: {advice}")


def scenario_of_bug(bug_id: str) -> Scenario | None:
    """The scenario that looks for a known bug; None if nobody has written one."""
    return next((entry for entry in KNOWN_BUGS if bug_id in entry.bugs), None)
