"""`call_text`: a tool call as the one text that is embedded and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from agentdojo.functions_runtime import FunctionCall

CallStyle = Literal["joined", "trimmed"]
"""`joined`: separators stand between arguments. `trimmed`: the reference's way, see `call_text`."""

KeyArguments = Mapping[str, Sequence[str]]
"""Tool -> the only arguments that count; a tool that is not named counts with all of them."""


def write_compared_text(call: FunctionCall, key_arguments: KeyArguments, style: CallStyle = "joined") -> str:
    """`name(first = value, second = value)`, arguments in the model's order, values as Python's `str`.

    Args:
        call: The call as the model made it.
        key_arguments: Arguments that alone count for some tools.
        style: `trimmed` writes a separator behind every argument and cuts the last two characters off,
            so that a call of which no argument counts loses the end of its name: `send_emai)`.
    """
    counting = key_arguments.get(call.function)
    kept = {name: value for name, value in call.args.items() if counting is None or name in counting}
    if style == "trimmed" and call.args and not kept:
        return f"{call.function[:-1]})"
    arguments = ", ".join(f"{name} = {value}" for name, value in kept.items())
    return f"{call.function}({arguments})"
