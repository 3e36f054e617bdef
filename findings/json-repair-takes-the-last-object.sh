#!/usr/bin/env bash
# Guess: a lenient parser mends brackets and quotes; of two objects it takes the first, or refuses.
# Seen: the last object wins; values with a unit are cut to their first number (50% is 50, 12:30 is 12, +49 170 is 49, $5 is
# 5) while others of the same kind become texts (1,000 and 555-0199); two texts side by side lose the second.
# Where: json_repair/parse_number.py and json_parser.py, version 0.64.6.
# Why it matters: where a judge's or a policy's reply is read with it, a quoted object behind the model's own decides the
# verdict; and a share, a time or a price changes its value without an error.
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
    '{"allow": true} since the text said {"allow": false}': {"allow": False},
    '{"share": 50%}': {"share": 50},
    '{"at": 12:30}': {"at": 12},
    '{"phone": +49 170}': {"phone": 49},
    '{"price": $5}': {"price": 5},
    '{"price": 1,000}': {"price": "1,000"},
    '{"phone": 555-0199}': {"phone": "555-0199"},
    '{"word": "one" "two"}': {"word": "one"},
}
seen = {text: json_repair.loads(text) for text in wanted}
print("json-repair", version("json-repair"))
for text, value in seen.items():
    print(f"{text} -> {value}")
assert seen == wanted
PYTHON
