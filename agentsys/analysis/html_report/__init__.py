"""The HTML report: everything about some stored runs in one file that needs no network.

What lives here: turning stored files into plain values (`trajectory`, `conversation`, `agent_tree`,
`case_index`, `facts`, `interval_figure`, `token_figure`) and the page (`page`, `templates/`).
`build.html_report` is the way in. Everything in a stored file
may have been written by an attacker: it reaches the page as autoescaped text or as escaped JSON,
and the page's script shows it as text only.
"""
