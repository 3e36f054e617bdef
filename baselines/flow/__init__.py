"""The engine of information flow under CaMeL and FIDES: labels, labelled values, tables of tool labels.

A `FlowLabel` says where a value came from and who may read it; `labelled_values` holds data that carries labels,
and a `LabelTable` that gives the results of a suite's tools their first ones; `quarantined_model` asks a model
that has no tools for a typed answer. What a defense does with labels - programs, conversations, policies - is its own.
"""
