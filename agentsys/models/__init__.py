"""Models: talking to chat models, one file per provider, and nothing about tasks or scores.

`chat` holds the types every provider speaks, `pipeline_elements` turns a `ChatModel` into the element
that AgentDojo expects, and `build_model` puts provider and wrappers together from a config.
Nothing here imports a defense, a run or an analysis.
"""
