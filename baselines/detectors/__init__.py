"""Detectors: a classifier reads every tool result first, and what it takes for an injection is withheld.

`detector` is what any detector must offer, `element` applies one to a conversation, `defense` puts the agent
together. `phrases` is a toy that needs nothing. The rest is for published classifiers and needs
`pip install 'agentsys-bench[detectors]'`: `classifier_defense` has the options, `load` puts a `classifier`
together.

What differs from AgentDojo 0.1.35 and AgentDyn, whose detectors these rebuild, and why:

* A new list of messages with new result messages is handed on. AgentDojo's changes the messages it was given,
  collects them in reverse order and throws that list away.
* The error text of a failed call, which models are sent instead of the content, is read and withheld too.
  AgentDojo's never looks at it, so an injection in an error passes (`read_errors: false` does the same).
* Long texts are read in overlapping windows, and the most suspicious one decides. AgentDojo's makes one pass
  over the whole text, however long; the models' own evaluations cut it (`long_input: whole` and `truncate`).
  `whole` is cut at 8,192 tokens, because cost grows with the square of the length.
* An empty text is safe and not classified.
* Labels are compared without regard to case, as AgentDyn does; a safe label that the model does not have is
  refused, because every verdict would be turned round. Code from a model's repository is never run.
* One loaded model and its scores are shared by all cases of a process, and a turn's texts form one batch.
* `on_injection: abort` ends the case without quoting the flagged text, which AgentDojo's message does.

`protectai_compat` and `piguard_compat` take the reference's side in the options named above.
"""
