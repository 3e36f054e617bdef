"""Models: talking to chat models, one file per provider, and nothing about tasks or scores.

`chat` holds the types every provider speaks, `element` turns a `ChatModel` into the pipeline
element AgentDojo expects, and `build` puts provider and wrappers together from a config.
Nothing here imports a defense, a run or an analysis.
"""
