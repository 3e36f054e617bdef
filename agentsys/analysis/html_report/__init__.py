"""The HTML report: everything about some stored runs in one file that needs no network.

What lives here: the page (`page.make_html_report`, `templates/`), its list of cases, its charts, and what it
shows of each stored case. Everything in a stored file may have been written by an attacker: it reaches the
page as autoescaped text or as escaped JSON, and the page's script shows it as text only.
"""
