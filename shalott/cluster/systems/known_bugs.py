"""Known bugs that a plan switches on in our own broker: those of its system, and no others."""

from __future__ import annotations

from shalott.broker.base.errors import ConfigError
from shalott.broker.known_bugs import check_bugs, known_bug
from shalott.core.errors import UsageError
from shalott.core.plan import SystemPlan


def check_own_bugs(system: SystemPlan) -> None:
    """Raises UsageError for what is no known bug, or one of another system."""
    try:
        check_bugs(system.bugs)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    for bug in map(known_bug, system.bugs):
        if system.name not in bug.systems:
            raise UsageError(
                f"{bug.id} is a bug of {' and '.join(bug.systems)}, not of {system.name}: leave it"
                f" out, or use --system {bug.systems[0]}"
            )
