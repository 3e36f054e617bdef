#!/usr/bin/env bash
# Guess: an evaluation in which one of four cases broke says so in its number, or gives none.
# Seen: of the same four cases, three of them right and one lost to an outage, dspy's Evaluate makes 75 (an exception is a wrong
# answer) and Inspect with `fail_on_error=False` an accuracy of 1.0 with a standard error of 0 (it is no answer), status success.
# Where: dspy/evaluate/evaluate.py (`failure_score`, 0 unless given); inspect_ai/_eval (metrics see the samples that have a score).
# Why it matters: the first lowers utility and, counted as an attack that failed, ASR; the second makes a selection: a defense
# whose hard cases run out of context is measured on the easy ones. Rates of two harnesses do not compare before errors are told.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in dspy inspect; do python3 -m venv "$folder/$name"; done
"$folder/dspy/bin/python" -m pip -q --disable-pip-version-check install dspy==3.4.1
"$folder/inspect/bin/python" -m pip -q --disable-pip-version-check install inspect-ai==0.3.285
cd "$folder"
DSPY_CACHEDIR="$folder/kept" "$folder/dspy/bin/python" -W ignore - 2>log <<'PYTHON' || { cat log; exit 1; }
from importlib.metadata import version

import dspy


class Agent(dspy.Module):
    def forward(self, question):
        if question == "d":
            raise ConnectionError("the server is down")
        return dspy.Prediction(answer="yes")


cases = [dspy.Example(question=question, answer="yes").with_inputs("question") for question in "abcd"]
evaluate = dspy.Evaluate(
    devset=cases, metric=lambda case, said, trace=None: said.answer == case.answer, num_threads=1, display_progress=False
)
score = evaluate(Agent()).score
print("dspy", version("dspy"), "| score", score)
assert score == 75.0
PYTHON
"$folder/inspect/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import solver


@solver
def agent():
    async def answer(state, generate):
        if state.input_text == "d":
            raise ConnectionError("the server is down")
        state.output.completion = "yes"
        return state

    return answer


task = Task(dataset=[Sample(input=letter, target="yes") for letter in "abcd"], solver=agent(), scorer=match())
[log] = eval(task, model="mockllm/model", log_dir="logs", display="none", fail_on_error=False)
values = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
print("inspect-ai", version("inspect-ai"), "| status", log.status, values, "| completed", log.results.completed_samples, "of 4")
assert (log.status, values, log.results.completed_samples) == ("success", {"accuracy": 1.0, "stderr": 0.0}, 3)
PYTHON
