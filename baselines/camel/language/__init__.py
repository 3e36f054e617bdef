"""The language of CaMeL's programs: a small part of Python, run on labelled values.

A program is untrusted text as far as this room is concerned. It is parsed with `ast` and walked node by node
(`expressions`, `interpreter`); functions, methods and attributes are those of the tables in `functions` and
`members`, looked up by name and applied to plain data. Nothing is compiled, and no attribute of a Python
object is ever reached by a name from the program. `machine` keeps steps, memory and time small. Whatever is
wrong with a program, or too much, is a `ProgramError`: any function here may raise it.
"""
