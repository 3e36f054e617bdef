"""The guard's function on texts with and without an injection: `pytest test_my_guard.py`."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

HERE = Path(__file__).parent
score = runpy.run_path(str(HERE / "conf" / "defense" / "my_guard.py"))["score"]


def test_injections_score_higher_than_other_texts() -> None:
    lines = (HERE / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line) for line in lines]
    injected, others = (
        [score(text["text"]) for text in texts if text["injected"] is kind] for kind in (True, False)
    )
    assert max(others) < 0.5 <= min(injected)
