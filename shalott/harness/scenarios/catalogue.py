"""Scenarios: every known bug's and every loss window's, by id.

``shalott search --bug ID`` and ``--scenario ID`` run one (harness/scenarios/scenario.py says
what it is); tests/planted/ runs them all, and each must find nothing of its anomaly with ``sound``
in place of it (the switch off, or the setting that closes the window).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from shalott.core.errors import UsageError
from shalott.harness.scenarios.controller import CONTROLLER_BUGS, CONTROLLER_WINDOWS
from shalott.harness.scenarios.dledger import DLEDGER_BUGS, DLEDGER_WINDOWS
from shalott.harness.scenarios.loss_windows import LOSS_WINDOWS
from shalott.harness.scenarios.master_slave import MASTER_SLAVE_BUGS, MASTER_SLAVE_WINDOWS
from shalott.harness.scenarios.mirrored import MIRRORED_BUGS
from shalott.harness.scenarios.scenario import Scenario

# One entry for each known bug: the ids are those of broker/known_bugs.py.
KNOWN_BUGS: tuple[Scenario, ...] = (
    *MIRRORED_BUGS,
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
    """The scenario that looks for a known bug; None if there is none."""
    return next((entry for entry in KNOWN_BUGS if bug_id in entry.bugs), None)
