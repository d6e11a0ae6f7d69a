"""Shalott: breaks replicated message brokers on purpose and tells you, with evidence, what they
lost.

The rooms of this package are the folders at the project's root; the links beside this file are
where the import system finds them, in a checkout and when the wheel is built.
"""
