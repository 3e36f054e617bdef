"""Forged chat templates: texts that look like the conversation's own frame, not like data in it.

`families` knows how models of a family write a conversation down, `chatinject` writes one turn of it into the
data, `dialogue` a whole persuasion.
"""
