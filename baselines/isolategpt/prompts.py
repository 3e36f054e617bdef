"""Every text IsolateGPT gives a model, in our own words. Tags, `action` and `Observation` are its form."""

from __future__ import annotations

from agentsys.models.prompted_tools import REPEAT_PREFIX

PLANNER = (
    """\
You decide which tools a request needs, before any of them is used. You know the request and the tools \
below, and nothing that a tool returns.

Write the steps in the order in which they are to be done, with tools of the list alone. Each step has the \
tool's name, its input, and a key of your choice for what it returns. Where a later step takes what an \
earlier one returns, its input is that key in angle brackets and nothing else.""",
    """\
Answer with JSON and nothing else: an object with the list "steps", {"steps": []} if the request needs no tool.""",
    (
        (
            "Pay what Acme has invoiced. (With the tools find_invoice and pay_invoice, which you do not have.)",
            '{"steps": [{"name": "find_invoice", "input": {"vendor": "Acme"}, "output": "invoice"},'
            ' {"name": "pay_invoice", "input": {"invoice": "<invoice>"}, "output": "receipt"}]}',
        ),
    ),
)
"""Task, form and example of the planner; the tools stand behind the task."""


SPOKE = (
    """\
You help with a request as accurately as you can. You can use the tools under own_tools yourself. What is \
listed under other_functionalities belongs to other assistants: name one of these as your action, with its \
input, and it is asked for on your behalf. You see nothing of how they work.

You work in turns. In each turn you may think, and then name exactly one action. What came of it is told to you as \
an Observation. When you are done, or where the request needs no action, the action is Final Answer, and its input \
is your answer. Valid actions are Final Answer and the names in the two lists, nothing else.""",
    'Name the action in a fenced JSON object with the two keys "action" and "action_input".',
    (
        (
            "Renew Middlemarch. (With the tool renew_loan, which you do not have.)",
            'Thought: Renew it.\n```json\n{"action": "renew_loan", "action_input": {"title": "Middlemarch"}}\n```',
        ),
        (
            "Observation: renewed until 3 May",
            '```json\n{"action": "Final Answer", "action_input": "Middlemarch is renewed until 3 May."}\n```',
        ),
    ),
)
"""Task, form and examples of a spoke; the lists stand behind the task."""

REMINDER = (
    "Answer with one fenced JSON object that has action and action_input. Use a tool where it is needed, and "
    "answer directly where it is not."
)
"""Stands behind the question."""

NO_SUCH_ACTION = "There is no action {name}. Valid are: {names}."
"""Observation on an action that nobody offers."""

SEND_AGAIN = f"{REPEAT_PREFIX}: the input of {{name}} does not fit. It must have this form: {{schema}}"
"""Observation on an input that does not follow the other app's schema; nothing was asked for."""

NOT_AVAILABLE = "{name} cannot be had: {reason} Do not try it again."
"""Observation on a request that did not get through."""

ILL_FORMED = "The answer of {name} was not in the agreed form, and is not shown."
"""Observation on a response that the requester finds unfit."""

INVALID_RESPONSE = "Invalid response format."
"""Takes the place of a response that does not follow its schema. A fixed text of the protocol."""

NOT_FOUND = "No app offers it."
REFUSED = "The user did not permit it."
LIMIT_REACHED = "Too many apps are at work already."
"""Reasons for which the hub lets nothing pass."""

DECLINED = "You chose not to run {app}, so nothing was done."
"""Told to the user where the first app was refused."""

OUT_OF_TURNS = "Stopped: too many turns without a final answer."
"""Answer of a spoke that came to no end."""

NO_ANSWER = "No answer was given."
"""Told to the user where an answer is empty."""

_NAMES = (
    "reminder no_such_action send_again not_available ill_formed"
    " invalid_response not_found refused limit_reached declined out_of_turns no_answer"
)
PROMPTS: dict[str, str] = {name: globals()[name.upper()] for name in _NAMES.split()}
"""All of them by name, for `agentsys show prompts`."""
