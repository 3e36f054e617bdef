"""The live view: the report's page, served on loopback, of runs that may still be going on.

What lives here: following folders (`followed`), what the page asks for (`answers`) and the server
(`server`). How cases look is the business of `agentsys.analysis.html_report`: the page is the same.
"""
