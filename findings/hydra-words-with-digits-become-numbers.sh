#!/usr/bin/env bash
# Guess: on a command line name=2024_05_13 is a text, as name=2024-05-13 is.
# Seen: digits with underscores between them are one whole number (20240513), as in Python's source; 4.10 is 4.1, 1e5 is
# 100000.0 and nan is not a number, while 007, 0x1f and 10:30 stay texts. In a sweep the number's spelling is what is swept.
# Where: hydra/grammar/OverrideLexer.g4 (INT, FLOAT), hydra-core 1.3.8.
# Why it matters: ids of models, dates of snapshots and versions of data are such words. A folder, a cache's key or a label
# made of them is another than the one that was typed, and 4.10 and 4.1 are one row.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install hydra-core==1.3.8
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from hydra.core.override_parser.overrides_parser import OverridesParser


def read(word):
    (override,) = OverridesParser.create().parse_overrides([f"name={word}"])
    return list(override.sweep_string_iterator()) if override.is_sweep_override() else override.value()


wanted = {
    "2024_05_13": 20240513,
    "2024-05-13": "2024-05-13",
    "'2024_05_13'": "2024_05_13",
    "v2024_05_13": "v2024_05_13",
    "4.10": 4.1,
    "1e5": 100000.0,
    "007": "007",
    "0x1f": "0x1f",
    "10:30": "10:30",
    "2024_05_13,2024_08_06": ["20240513", "20240806"],
}
seen = {word: read(word) for word in wanted}
print("hydra-core", version("hydra-core"))
for word, value in seen.items():
    print(f"name={word} -> {value!r}")
assert seen == wanted
PYTHON
