"""The reports of one run: report.html, results.json, junit.xml and the words on the terminal.

A verdict's way: a checker's ``Result`` (checkers/checker.py) is put into words by verdict_words.py
and named as a violation by violations.py. results.py writes it as data, junit.py as test cases, and
report_page.py as a page, whose parts are shown_anomalies.py, losses.py,
message_outcomes.py, run_picture.py, consumer_section.py and timelines.py.
"""
