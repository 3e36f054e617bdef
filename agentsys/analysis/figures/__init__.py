"""The paper's figures and two of our own: what is plotted as data, and how it is drawn.

Every figure is made in two steps: a pure function gathers `Mark`s (the plotted numbers, which are also
written as CSV), another draws them. matplotlib is imported where something is drawn and nowhere else,
always as `Figure` objects: no pyplot, no state between figures.
"""
