"""What can go wrong with a simulation itself, as opposed to what is simulated."""

from __future__ import annotations

from shalott.core.errors import HarnessError


class SimError(HarnessError):
    """The simulation can't go on."""


class SimDeadlock(SimError):
    """Nothing is ready to run and no timer is set: everybody waits for ever."""


class SimLivelock(SimError):
    """Callbacks follow callbacks and time does not move."""


class SimTimeLimit(SimError):
    """The virtual deadline was reached."""


class SimFence(SimError):
    """Code in a simulation reached for the real world. The message says what to use instead."""
