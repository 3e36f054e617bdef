"""Tools as models are told of them."""

from __future__ import annotations

from agentdojo.functions_runtime import Function, make_function

from agentsys.models.pipeline_elements import describe_tool


def pay(amount: int) -> str:
    """Pay.

    :param amount: How much.
    """
    return f"{amount} paid"


TOOL = make_function(pay)


def _function(name: str, description: str) -> Function:
    return TOOL.model_copy(update={"name": name, "description": description})


def test_tools_with_one_class_of_arguments_keep_their_own_names_and_descriptions() -> None:
    told = [("pay", "Pays."), ("pay", "Pays twice."), ("take", "Pays.")]
    for _ in range(2):
        specs = [describe_tool(_function(name, description)) for name, description in told]
        assert [(spec.name, spec.description) for spec in specs] == told
        assert all(spec.parameters is specs[0].parameters for spec in specs)
    assert specs[0].parameters == TOOL.parameters.model_json_schema()
