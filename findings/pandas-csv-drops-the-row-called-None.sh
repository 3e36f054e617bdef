#!/usr/bin/env bash
# Guess: a table that is written as CSV and read again has the same labels.
# Seen: labels that spell None, NA, null, nan or n/a come back as missing, and groupby leaves their rows out without a word;
# "none" and "no defense" stay. A mean over all rows still counts them, so the parts no longer give the whole.
# Where: pandas/_libs/parsers.pyx (STR_NA_VALUES) and the default dropna=True of groupby, pandas 3.1.1.
# Why it matters: the undefended baseline and the case without an attack are the ones so called: their row is gone from the
# table that everything is compared with. keep_default_na=False keeps it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install pandas==3.1.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import io
from importlib.metadata import version

import pandas as pd

labels = ["None", "NA", "null", "nan", "n/a", "none", "no defense", "melon"]
written = pd.DataFrame({"defense": labels, "hit": [1, 1, 1, 1, 1, 0, 0, 0]}).to_csv(index=False)
print("pandas", version("pandas"))
seen = {}
for keep in (True, False):
    table = pd.read_csv(io.StringIO(written), keep_default_na=keep)
    seen[keep] = table.groupby("defense")["hit"].mean()
    print(f"keep_default_na={keep}: groups {list(seen[keep].index)}, mean of all rows {table['hit'].mean()}")
assert sorted(seen[True].index) == ["melon", "no defense", "none"] and seen[True].sum() == 0
assert sorted(seen[False].index) == sorted(labels)
PYTHON
