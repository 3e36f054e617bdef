"""Write agentsys/models/last_days.json: the last days of vendors' chat models, by litellm's table.

    python scripts/last_days.py

litellm says no successor; ours are the presets that take a model's place. Needs the extra `litellm`.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "agentsys" / "models" / "last_days.json"
VENDORS = ("openai", "anthropic", "gemini", "vertex_ai-language-models", "deepseek", "xai", "mistral")
SUCCESSORS = (
    ("claude-haiku", "claude-haiku-4.5"),
    ("claude-opus", "claude-opus-4.8"),
    ("claude", "claude-sonnet-4.6"),
    ("deepseek", "deepseek-v4-flash"),
    ("gemini", "gemini-3-flash"),
    ("o4-mini", "gpt-5.4-mini"),
    ("o3-mini", "gpt-5.4-mini"),
    ("gpt-4o-mini", "gpt-5.4-mini"),
    ("gpt-4.1-mini", "gpt-5.4-mini"),
    ("gpt-4.1-nano", "gpt-5.4-mini"),
    ("gpt-3.5", "gpt-5.4-mini"),
    ("gpt-5-mini", "gpt-5.4-mini"),
    ("gpt-5-nano", "gpt-5.4-mini"),
    ("gpt-", "gpt-5.6"),
    ("o1", "gpt-5.6"),
    ("o3", "gpt-5.6"),
)
"""How an id begins, and the preset that takes its place; the first that fits."""


def read_table() -> dict[str, Any]:
    """Litellm's table, without importing the package: that takes seconds."""
    spec = find_spec("litellm")
    assert spec is not None and spec.origin is not None
    table = Path(spec.origin).with_name("model_prices_and_context_window_backup.json")
    rows: dict[str, Any] = json.loads(table.read_text(encoding="utf-8"))
    return rows


def collect_last_days(table: dict[str, Any]) -> dict[str, list[Any]]:
    """Id -> last day and preset that takes its place."""
    found: dict[str, list[Any]] = {}
    for name, row in table.items():
        if row.get("mode") not in ("chat", "responses") or row.get("litellm_provider") not in VENDORS:
            continue
        model_id = name.rpartition("/")[2]
        if (day := row.get("deprecation_date")) and not name.startswith("ft:"):
            successor = next((preset for start, preset in SUCCESSORS if model_id.startswith(start)), None)
            if "pro" in model_id.split("-") and model_id.startswith("gemini"):
                successor = "gemini-3-pro"
            # Google's two APIs have a day each.
            found[model_id] = [max(day, *(found.get(model_id) or [day])[:1]), successor]
    return dict(sorted(found.items()))


if __name__ == "__main__":
    document = {"litellm": version("litellm"), "models": collect_last_days(read_table())}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in document["models"].items())
    head = f'{{"litellm": "{document["litellm"]}", "models": {{\n'
    TARGET.write_text(f"{head}{lines}\n}}}}\n", encoding="utf-8")
