"""Options of a config against the annotations of the dataclass that they make up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from agentsys.base.option_checks import AtLeast0, AtLeast1, check_options
from agentsys.errors import ConfigError


class Pace(Enum):
    SLOW = "slow"
    FAST = "fast"


@dataclass(frozen=True)
class Journey:
    by: Literal["train", "boat"] = "train"
    pace: Pace = Pace.SLOW
    quiet: bool = True
    stops: AtLeast0 = 2
    seats: AtLeast1 | None = None
    warmth: Annotated[float, Field(ge=0, le=1)] = 0.5
    stars: Annotated[int, Field(ge=1, le=3)] = 2
    via: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    number: int = 0


def test_what_is_given_is_taken_and_the_rest_is_the_dataclass_own() -> None:
    options = {"by": "boat", "pace": "fast", "stops": 0, "warmth": 1, "via": {"north": ["Bergen"]}}
    made = check_options(Journey, "trip", options, number=7)
    assert made == Journey("boat", Pace.FAST, stops=0, warmth=1, via={"north": ("Bergen",)}, number=7)
    assert check_options(Journey, "trip", {"pace": Pace.FAST, "seats": None}) == Journey(pace=Pace.FAST)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": "boot"}, r"^Unknown trip by 'boot'\. Did you mean boat\? Known: boat, train\.$"),
        ({"pace": "fest"}, r"^Unknown trip pace 'fest'\. Did you mean fast\?"),
        ({"quiet": "no"}, "^trip: quiet is 'no'; give true or false.$"),
        ({"quiet": 1}, "^trip: quiet is 1; give true or false.$"),
        ({"stops": -1}, "^trip: stops is -1; give a whole number of at least 0.$"),
        ({"stops": "2"}, "stops is '2'"),
        ({"stops": True}, "stops is True"),
        ({"seats": 0}, "^trip: seats is 0; give a whole number of at least 1, or null.$"),
        ({"warmth": float("nan")}, "^trip: warmth is nan; give a number from 0 to 1.$"),
        ({"warmth": True}, "warmth is True"),
        ({"stars": 4}, "^trip: stars is 4; give a whole number from 1 to 3.$"),
        ({"stars": True}, "stars is True"),
        ({"via": {"north": "Bergen"}}, "^trip: via is .*; give a value of the type object.$"),
        ({"stop": 1}, r"^Unknown trip option 'stop'\. Did you mean stops"),
        ({"number": 3}, "^Unknown trip option 'number'"),
    ],
)
def test_a_slip_is_told_in_one_line_with_the_mend(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check_options(Journey, "trip", options, number=7)
    assert "\n" not in str(caught.value)
