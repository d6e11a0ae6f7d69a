"""beanstalkd under test: ``--load shalott_beanstalkd``."""

from shalott_beanstalkd.beanstalkd import SYSTEM as SYSTEM, WORKLOAD as WORKLOAD  # isort: skip
