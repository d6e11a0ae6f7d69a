"""Historical bugs, each a switch that is off by default.

A switch brings the old behaviour back at the very place where it was, so that a search must find
what people once lost. A node's configuration names those that are on; ``Env.has_bug(id)`` asks for
one in the code. The entries are in rabbit/known_bugs.py,
rocket/known_bugs.py and rocket/known_bugs_tested.py.
Confidence: A is a fix or a source that was read, B an issue thread, C a title, own our own code.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from shalott.broker.base.errors import ConfigError
from shalott.broker.base.known_bug import KnownBug
from shalott.broker.rabbit.known_bugs import OWN_RULES, RABBITMQ_BUGS
from shalott.broker.rocket.known_bugs import DLEDGER_BUGS, ROCKETMQ_BUGS
from shalott.broker.rocket.known_bugs_tested import TESTED_BUGS

__all__ = ["CATALOGUE", "OWN_RULES", "RABBITMQ_BUGS", "KnownBug", "check_bugs", "known_bug"]

CATALOGUE: tuple[KnownBug, ...] = (
    *RABBITMQ_BUGS,
    *OWN_RULES,
    *ROCKETMQ_BUGS,
    *DLEDGER_BUGS,
    *TESTED_BUGS,
)


def known_bug(bug_id: str) -> KnownBug:
    """The entry of ``bug_id``. Raises ConfigError with one sentence that names near ids."""
    for bug in CATALOGUE:
        if bug.id == bug_id:
            return bug
    near = _near(bug_id)
    advice = f"did you mean {' or '.join(near)}?" if near else "`shalott bugs` lists them"
    raise ConfigError(f"there is no known bug {bug_id}: {advice}")


def _near(bug_id: str) -> list[str]:
    """Ids that may have been meant: another case, no leading zero, or a slip of the finger."""
    known = [bug.id for bug in CATALOGUE]
    family, dash, number = bug_id.strip().upper().rpartition("-")
    wanted = f"{family}{dash}{number.zfill(2)}"
    if wanted in known:
        return [wanted]
    return difflib.get_close_matches(wanted, known, n=3, cutoff=0.7)


def check_bugs(bug_ids: Iterable[str]) -> None:
    """Raises ConfigError for the first id that is not in the catalogue."""
    for bug_id in bug_ids:
        known_bug(bug_id)
