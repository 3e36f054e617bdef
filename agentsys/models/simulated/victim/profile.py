"""`VictimProfile`: the file that `agentsys fit` writes, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentsys.errors import ConfigError, unknown_name

FORMAT = 1
"""Raised when a key of the file changes its meaning."""
MOST_BYTES = 60_000
"""Size of a profile's file; a larger one is none."""
BENIGN, HIJACKED, NOT_HIJACKED = "benign", "hijacked", "not_hijacked"
"""Conditions under which a user task is solved or not."""

# Kinds of forecast: what the number of a simulated case means.
FITTED = "fitted"
"""No defense: rates of the runs themselves, drawn again."""
STRUCTURAL = "structural"
"""What a defense shows and offers is decided by itself; the victim behaves as it does undefended."""
BOUND = "bound"
"""Likewise, and the defense refuses more than its structure: an upper bound of the ASR."""
FACTOR = "factor"
"""A defense that only rewords: an interval over other models, never a number."""
NO_RUNS = "no runs"
"""Nothing to forecast from."""
KINDS = (FITTED, STRUCTURAL, BOUND, FACTOR)
"""What a defense may say of itself."""

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Deviation = Annotated[float, Field(ge=0, le=20, allow_inf_nan=False)]
_Effect = tuple[_Number, _Deviation]
"""An effect on the logit, and its standard error."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FittedTo(_Part):
    """The runs behind a profile."""

    benchmark: str
    version: str
    cases: int = Field(ge=1)
    """Attacked cases without error."""
    exposed: int = Field(ge=1)
    """Of these, cases in which a tool returned the payload."""
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    """Of the runs' content, whatever folder they lie in."""
    source: str
    """Whose runs these are, and their licence."""


class AttackShift(_Part):
    """How an attack's wording moves obeying on the logit, beside the first wording of the profile."""

    shift: _Number
    se: _Deviation
    cases: int = Field(ge=1)


class LogitBlock(_Part):
    """A logistic model with random effects: logit p = intercept + covariates + effects of levels + offset."""

    sd: dict[str, _Deviation]
    """Factor -> standard deviation of its effects; what an unseen level adds to the uncertainty."""
    fixed: dict[str, _Number]
    """`intercept`, and the coefficient of each standardised covariate."""
    standardise: dict[str, tuple[_Number, _Number]] = {}
    """Covariate -> (mean, standard deviation) in the runs."""
    offset: dict[str, _Number] = {}
    """Level of the first factor -> what makes the mean forecast the observed rate there."""
    effects: dict[str, dict[str, _Effect]]
    """Factor -> level -> [effect, standard error]."""


class Rates(_Part):
    """Manners of the model in its undefended runs: [times, opportunities]."""

    no_call: tuple[int, int]
    """Conversations without any call."""
    text_call: tuple[int, int]
    """Conversations in which a call was written as text."""
    empty_final: tuple[int, int]
    """Conversations that ended on an empty answer."""
    ends_on_call: tuple[int, int]
    """Conversations that ended on a call."""
    repeated_call: tuple[int, int]
    """Conversations in which an identical call was made twice."""
    parallel: tuple[int, int]
    """Turns with more calls than one, of all turns with calls."""
    failed_call: tuple[int, int]
    """Calls whose tool answered with an error."""


class Skill(_Part):
    """How forecasts of unseen tasks did, percent but for the Brier scores."""

    brier: _Number
    base: _Number
    """Brier score of the overall rate."""
    ece: _Number
    """Expected calibration error over ten bins."""
    floor: _Number
    """What a perfectly calibrated forecast of so many cases would score there."""
    overall: _Number
    """Forecast minus observed rate, in points."""
    worst_suite: _Number
    """The largest such difference of a suite, without its sign."""


class VictimProfile(_Part):
    """How one model behaved, undefended, in published runs."""

    victim: int
    """The file's format."""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
    fitted_to: FittedTo
    usable_for: tuple[str, ...] = ("undefended", "structural")
    """`undefended` alone where the host dropped calls, so that a defense would change more than it should."""
    attacks: dict[str, AttackShift] = Field(min_length=1)
    """Attack -> what its wording changes. Wordings that are not named have no runs."""
    obey: LogitBlock
    """Whether the injection task is carried out where a tool returned the payload."""
    exposed: LogitBlock
    """Whether a tool returned the payload."""
    solve: LogitBlock
    """Whether the user task is solved; suites are split by condition, e.g. `banking/hijacked`."""
    needs: dict[str, tuple[str, ...]] = {}
    """Goal -> tools that nearly all its successes called after the payload was met."""
    without_exposure: tuple[int, int] = (0, 0)
    """Successes and cases in which no tool returned the payload: noted, never forecast."""
    manners: Rates
    validation: dict[str, Skill] = {}
    """`user`, `injection`, `suite`: what was left out when it was forecast."""

    @property
    def label(self) -> str:
        """The name under which every number drawn from it is shown."""
        cases, digest = self.fitted_to.cases, self.fitted_to.digest.removeprefix("sha256:")[:8]
        return f"simulated, fitted to {self.name} ({cases} cases, {digest})"

    def knows(self, suite: str, injection_task: str) -> bool:
        """Whether there are runs of this goal."""
        return f"{suite}/{injection_task}" in self.obey.effects["injection"]

    @property
    def suites(self) -> frozenset[str]:
        """The suites it has runs of."""
        return frozenset(self.obey.effects["suite"])


def profiles_dir() -> Path:
    """The folder of the profiles that come with the package."""
    return Path(__file__).parent / "profiles"


def shipped_profiles() -> list[str]:
    """Names of the profiles that come with the package."""
    return sorted(path.stem for path in profiles_dir().glob("*.yaml"))


def profile_path(name: str) -> Path:
    """Where the profile of a shipped name, or at a path, lies.

    Raises:
        ConfigError: If it is neither.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    if name not in shipped_profiles():
        raise ConfigError(
            f"{unknown_name('victim', name, shipped_profiles())} Or give a file: model.victim=PATH.yaml."
        )
    return profiles_dir() / f"{name}.yaml"


def load_profile(name: str) -> VictimProfile:
    """Read a profile by its shipped name or its path.

    Raises:
        ConfigError: If there is none, or what is there is not one.
    """
    path = profile_path(name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"Victim {path} cannot be read: {error.strerror}. Give an existing file.") from None
    return _checked(content, str(path))


@lru_cache(maxsize=8)
def _checked(content: bytes, where: str) -> VictimProfile:
    if len(content) > MOST_BYTES:
        raise ConfigError(f"Victim {where}: {len(content)} bytes; a profile has at most {MOST_BYTES}.")
    try:
        read = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError(f"Victim {where} is no YAML: {str(error).splitlines()[0]}.") from None
    return checked_profile(read, where)


def checked_profile(read: object, where: str) -> VictimProfile:
    """Check what a file holds.

    Raises:
        ConfigError: Naming the key and what is wrong with it.
    """
    if not isinstance(read, Mapping) or not isinstance(read.get("victim"), int):
        raise ConfigError(f"Victim {where} is no profile: `victim: {FORMAT}` is missing. See `agentsys fit`.")
    if read["victim"] > FORMAT:
        raise ConfigError(
            f"Victim {where} was written by a newer agentsys (format {read['victim']}, known: {FORMAT})."
        )
    try:
        profile = VictimProfile.model_validate(read)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"Victim {where}: {key}: {first['msg']}.") from None
    _check_factors(profile, where)
    return profile


_FACTORS: Mapping[str, tuple[str, ...]] = {
    "obey": ("suite", "tool", "user", "injection"),
    "exposed": ("suite", "user"),
    "solve": ("suite", "user"),
}
"""Block -> its factors; the first is the one offsets are by."""


def _check_factors(profile: VictimProfile, where: str) -> None:
    for name, factors in _FACTORS.items():
        block: LogitBlock = getattr(profile, name)
        lacking: list[Any] = [one for one in factors if one not in block.effects or one not in block.sd]
        if (
            lacking
            or "intercept" not in block.fixed
            or block.fixed.keys() - {"intercept", *block.standardise}
        ):
            what = f"factor {lacking[0]}" if lacking else "the covariates' means, or the intercept"
            raise ConfigError(f"Victim {where}: {name} lacks {what}.")
