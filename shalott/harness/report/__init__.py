"""The reports of one run: report.html, results.json, junit.xml and the words on the terminal.

A verdict's way: a checker's ``Result`` (checkers/checker.py) is put into words by verdict_words.py
and named as a violation by results.py, which writes it as data; junit.py writes test cases, and
report_page.py as a page, whose parts are shown_anomalies.py, losses.py, message_outcomes.py,
run_picture.py and consumer_section.py.
"""
