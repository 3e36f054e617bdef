"""The engine of information flow under CaMeL and FIDES: labels, labelled values, tables of tool labels.

A `FlowLabel` says where a value came from and who may read it; `values` holds data that carries labels; a
`LabelTable` gives the results of a suite's tools their first labels; `quarantine` asks a model that has no
tools for a typed answer. What a defense does with labels - programs, conversations, policies - is its own.
"""
