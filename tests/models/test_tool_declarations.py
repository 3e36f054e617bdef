"""Tools as OpenAI writes them into a prompt."""

from __future__ import annotations

from typing import Any

from agentsys.models.chat import ToolSpec
from agentsys.models.tool_declarations import declarations


def _tool(properties: dict[str, Any], **schema: Any) -> ToolSpec:
    return ToolSpec("send", "Sends it.\nAt once.", {"type": "object", "properties": properties, **schema})


def test_tool_is_written_with_its_comments_and_optional_parameters() -> None:
    text = declarations(
        [
            _tool(
                {
                    "to": {"type": "array", "items": {"type": "string"}, "description": "Who gets it."},
                    "count": {
                        "anyOf": [{"type": "integer"}, {"type": "null"}],
                        "default": 3,
                        "title": "Count",
                    },
                },
                required=["to"],
            )
        ]
    )
    assert text == (
        "namespace functions {\n\n// Sends it.\n// At once.\n"
        "type send = (_: {\n// Who gets it.\nto: string[],\n"
        "count?: number | null, // default: 3\n}) => any;\n\n} // namespace functions"
    )


def test_tool_without_parameters_takes_nothing() -> None:
    assert "type send = () => any;" in declarations([_tool({})])


def test_no_tools_are_no_text() -> None:
    assert declarations([]) == ""


def test_shared_parts_are_written_where_they_are_used() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    text = declarations([_tool({"at": {"$ref": "#/$defs/Point"}}, **{"$defs": {"Point": point}})])
    assert "at?: {\nx: number,\n}," in text


def test_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    assert "any" in declarations([_tool({"first": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": node}})])
