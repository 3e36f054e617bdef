#!/usr/bin/env bash
# Guess: where a number carries a unit, the number or the text is kept, and the rest of the object stays where it is.
# Seen: the unit takes the closing bracket along. What stands behind an inner object or list becomes part of it: in
# {"plan": {"share": 50%}, "allow": false} the key "allow" is gone from the outer object, and a list gets key and value as items.
# 12:30 does it too, "$5" and a space do not.
# Where: json_repair/parse_number.py, version 0.64.6.
# Why it matters: no value is wrong and nothing is said, yet a verdict, a permission or a list of steps is read from another
# level: who asks for the outer key finds none and takes the default.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install json-repair==0.64.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import json_repair

wanted = {
    '{"plan": {"share": 50}, "allow": false}': {"plan": {"share": 50}, "allow": False},
    '{"plan": {"share": 50%}, "allow": false}': {"plan": {"share": 50, "allow": False}},
    '{"plan": {"way": 5 km}, "allow": false}': {"plan": {"way": 5, "allow": False}},
    '{"plan": {"at": 12:30}, "allow": false}': {"plan": {"at": 12, "allow": False}},
    '{"shares": [5%, 6%], "allow": false}': {"shares": [5, 6, "allow", False]},
    '{"plan": {"price": $5}, "allow": false}': {"plan": {"price": 5}, "allow": False},
}
seen = {text: json_repair.loads(text) for text in wanted}
print("json-repair", version("json-repair"))
for text, value in seen.items():
    print(f"{text} -> {value}")
assert seen == wanted
PYTHON
