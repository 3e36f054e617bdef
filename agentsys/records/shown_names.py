"""`ShownNames`: what tables and figures call defenses and models, instead of their names in the runs."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentsys.records.simulated_name import is_simulated_name, mark_simulated_name, strip_simulated_mark

_Name = Annotated[str, Field(min_length=1)]


class DisplayNames(BaseModel):
    """The section `shown` of a file of names. Nothing is looked up, measured or stored under these names."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    defenses: dict[str, _Name] = Field(default_factory=dict)
    """Name in the runs -> name shown."""
    models: dict[str, _Name] = Field(default_factory=dict)
    """Likewise; a simulated model keeps its mark."""

    @model_validator(mode="after")
    def _check_distinct(self) -> DisplayNames:
        for kind in (self.defenses, self.models):
            for name, count in Counter(kind.values()).items():
                if count > 1:
                    raise ValueError(
                        f"{count} of one kind are shown as '{name}'; nobody could tell them apart"
                    )
        return self

    def defense_name(self, name: str) -> str:
        """The name shown for a defense."""
        return self.defenses.get(name, name)

    def model_name(self, name: str) -> str:
        """The name shown for a model, marked if the name given is."""
        if strip_simulated_mark(name) in self.models:
            return mark_simulated_name(self.models[strip_simulated_mark(name)], simulated=is_simulated_name(name))
        return self.models.get(name, name)

    def series_name(self, name: str) -> str:
        """The name shown for a figure's series: a defense, perhaps with a benchmark's version behind it."""
        defense, comma, version = name.partition(", ")
        return f"{self.defense_name(defense)}{comma}{version}"


STORED_NAMES = DisplayNames()
"""Everything under the name that the runs have."""
