#!/usr/bin/env bash
# Guess: litellm's table of models keeps a model's last day as announced, and lists models that were switched off.
# Seen: between 1.105.3 and 1.110.2 gemini-2.5-flash's day moves from 2026-10-20 to 2026-12-01; claude-3-7-sonnet-20250219 is in
# neither, while models past their day stay listed as usable.
# Where: litellm/model_prices_and_context_window_backup.json, the key deprecation_date.
# Why it matters: whether a published run can still be repeated, and what it cost, cannot be read from the newest table alone:
# keep the price and the day with the run.
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

seen = {}
for version in ("1.105.3", "1.110.2"):
    with open(f"{version}/litellm/model_prices_and_context_window_backup.json", encoding="utf-8") as file:
        table = json.load(file)
    day = table["gemini-2.5-flash"].get("deprecation_date")
    seen[version] = (day, "claude-3-7-sonnet-20250219" in table, table["gpt-4o-2024-05-13"]["deprecation_date"])
print("litellm", seen)
assert seen == {"1.105.3": ("2026-10-20", False, "2026-10-23"), "1.110.2": ("2026-12-01", False, "2026-10-23")}
PYTHON
