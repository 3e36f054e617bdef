"""SciPy's special functions that intervals and tests are made of, without the rest of `scipy.special`.

They are compiled, and imported in a tenth of the time that the package takes: it copies NumPy and wraps every
function for other kinds of arrays. `agentsys.light_imports` leaves the package unexecuted until somebody asks
it for a name. Take them as attributes of this module: none is imported before the first one is needed, so
that help texts do without.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

NAMES = ("binom", "expit", "logit", "stdtr", "stdtrit")


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        functions = vars(import_module("scipy.special._ufuncs"))
        found = {one: functions[one] for one in NAMES}
    except (ImportError, KeyError):  # a SciPy that has them elsewhere; 1.17 has them here
        package = import_module("scipy.special")
        found = {one: getattr(package, one) for one in NAMES}
    globals().update(found)
    return found[name]
