"""A guard that is a program: a JSON line in, a JSON line out, each with the id of its question."""

from __future__ import annotations

import json
import sys

for line in sys.stdin:
    asked = json.loads(line)
    answer = {"id": asked["id"], "injected": "instead" in asked["text"].lower()}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
