"""What runs on the hosts: Python 3.9 or newer and its standard library, nothing else."""
