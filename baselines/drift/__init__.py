"""DRIFT (Li et al., arXiv 2506.12104): a plan made before anything is seen, and calls held against it.

`plan` asks for it, `validator` (with `progress` and `checklist`) holds calls against it, `isolator` (with
`masking`) cuts planted instructions out of results, `agent` runs the task. `fixes` lists the defects of the
reference implementation that `Drift` mends and `compat: true` keeps. Deviations that both variants share:

* One agent per task, with nothing left over from the task before (plan, checklist, system prompt).
* A model that fails ends the case as an error; the reference judges on with a fixed text.
* Plan once per task by an explicit step; the reference counts messages. Text blocks are joined, other blocks
  kept, and the caller's messages never changed; the reference keeps a message's first block.
* Temperature and length are the model's own settings, the same for every role.
* Call ids count up; the reference draws them.
* The detector is not asked about results without text.
* Prompts are in our own words; the detector is told what to answer when there is nothing.
"""

from baselines.drift.defense import Drift

__all__ = ["Drift"]
