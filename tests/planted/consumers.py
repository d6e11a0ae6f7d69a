"""Brokers broken on purpose where consumers are served: one defect each, and who must say so.

As tests/planted/mutants.py, for the workloads ``consume`` and ``group``: a mutant is data, what is
replaced in the broker's sources. Each must be found by the checker that is named, by the plain
search (``benchmarks/consumer_mutants.py`` measures how soon), and by one short run that is known to
show it, in which the sound broker is valid (tests/planted/test_consumers_sim.py).
"""

from __future__ import annotations

from tests.planted.consumers_amqp import AMQP
from tests.planted.consumers_rocket import ROCKET
from tests.planted.consumers_shape import ConsumerMutant

MUTANTS: tuple[ConsumerMutant, ...] = (*AMQP, *ROCKET)
