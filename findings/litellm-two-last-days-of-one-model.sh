#!/usr/bin/env bash
# Guess: litellm's table gives a model one last day, and keeps models that were switched off, so that old runs have a price.
# Seen: in 1.110.2 gemini-2.5-flash ends on 2026-10-20 (Vertex AI) and gemini/gemini-2.5-flash on 2026-12-01; 1.105.3 has the first
# day alone. claude-3-7-sonnet-20250219 is in neither release, while gpt-4o-2024-05-13, past its day, is in both.
# Where: litellm/model_prices_and_context_window_backup.json, the key deprecation_date.
# Why it matters: whether a published run can still be repeated hangs on the prefix of the id, and what it cost cannot be read from
# the newest table: keep day and price with the run.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
for version in 1.105.3 1.110.2; do
    "$folder/venv/bin/python" -m pip -q --disable-pip-version-check install --no-deps --target "$folder/$version" "litellm==$version"
done
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json

NAMES = ("gemini-2.5-flash", "gemini/gemini-2.5-flash", "gpt-4o-2024-05-13", "claude-3-7-sonnet-20250219")
seen = {}
for version in ("1.105.3", "1.110.2"):
    with open(f"{version}/litellm/model_prices_and_context_window_backup.json", encoding="utf-8") as file:
        table = json.load(file)
    seen[version] = [table[name].get("deprecation_date") if name in table else "not in it" for name in NAMES]
print("litellm", seen)
assert seen == {
    "1.105.3": ["2026-10-20", None, "2026-10-23", "not in it"],
    "1.110.2": ["2026-10-20", "2026-12-01", "2026-10-23", "not in it"],
}
PYTHON
