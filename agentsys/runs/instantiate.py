"""`instantiate`: builds the object that a config node describes, and refuses misspelled abilities."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from agentdojo.task_suite.task_suite import TaskSuite

from agentsys import abilities, contracts
from agentsys.base.object_import import build_object
from agentsys.errors import ConfigError

_REQUIRED: Mapping[str, type] = {
    "defense": contracts.Defense,
    "attack": contracts.Attack,
    "benchmark": contracts.Benchmark,
    "suite": TaskSuite,
}
"""Kind of object -> its required protocol."""

_ABILITIES: Mapping[str, tuple[type, ...]] = {
    "defense": (
        *(abilities.DescribesItself, abilities.NamesPrompts, abilities.ChecksItsNeeds, abilities.KeepsFiles),
        *(abilities.HoldsDefenses, abilities.NeedsOwnModels, abilities.Rehearsable, abilities.WholeProgram),
        *(abilities.PlaysRoles, abilities.HasContents, abilities.ReadsTools, abilities.ReadsBesideYaml),
    ),
    "attack": (
        *(abilities.PicksPairs, abilities.NamesExclusions, abilities.NamesSources, abilities.NamesFromFile),
        *(abilities.FollowsModel, abilities.NamesTasks, abilities.SearchesTexts, abilities.ReplaysTexts),
        *(abilities.NeedsReadingTest, abilities.PlaysRoles, abilities.PoisonsTools),
        abilities.ChecksSuccess,
    ),
    "benchmark": (
        abilities.HasInjectionMode,
        abilities.HasClock,
        abilities.DeclaresFacts,
        abilities.PlaysRoles,
    ),
    "suite": (
        *(abilities.HasInjectionMode, abilities.StartsFrom, abilities.LeadsUsers, abilities.WrapsModels),
        *(abilities.TakesTurns, abilities.MeasuresCases, abilities.SparesUserTasks, abilities.DrawsAtRandom),
        abilities.KnowsWays,
    ),
}
"""Kind of object -> its optional protocols."""

READ_TOOLS = "read_tools"
"""Option of every defense that can read tools (`abilities.ReadsTools`)."""
_SIMILARITY_CUTOFF = 0.8
"""Similarity, in [0, 1], from which one name counts as a misspelling of another."""


def instantiate(group: str, config: Mapping[str, Any]) -> Any:
    """Build the object of a config node: call `_target_` with the node's other keys.

    Options that are such nodes themselves (an attack's `base`), or lists of them, are built first.

    Raises:
        ConfigError: If the target cannot be imported or refuses its options, or an ability is misspelled.
    """
    options = {key: _build_option(group, value) for key, value in config.items()}
    reads = options.pop(READ_TOOLS, False) if group == "defense" else False
    made = build_object(group, options)
    check_abilities(group, made, f"{group} {config['_target_']}")
    if reads:
        if abilities.can_read_tools(made):
            made.reads_tools = True
        if not getattr(made, "reads_tools", False):
            raise ConfigError(
                "defense.read_tools=true: this defense reads no descriptions of tools; leave it out, or use one"
                " that filters results (phrase_detector, firewall_sanitizer, promptarmor, ...)."
            )
    return made


def _build_option(group: str, option: Any) -> Any:
    if isinstance(option, list):
        return [_build_option(group, item) for item in option]
    return instantiate(group, option) if isinstance(option, dict) and "_target_" in option else option


def check_abilities(kind: str, made: object, called: str) -> None:
    """Check the spelling and the kind of an object's optional abilities.

    Without this check, an ability with a misspelled name would silently never be used.

    Raises:
        ConfigError: If a public name resembles an ability that the object lacks, or an ability is a method
            instead of a value, or the reverse.
    """
    required = _REQUIRED.get(kind)
    if required is None or not isinstance(made, required):
        return
    known = {name: ability for ability in _ABILITIES[kind] for name in list_protocol_members(ability)}
    own = {name for name in (*dir(type(made)), *getattr(made, "__dict__", {})) if not name.startswith("_")}
    _check_shapes(made, {name: known[name] for name in own & known.keys()}, called)
    absent = known.keys() - own
    for name in sorted(own - known.keys() - {*dir(required), *list_protocol_members(required)}):
        near = difflib.get_close_matches(name, absent, n=1, cutoff=_SIMILARITY_CUTOFF)
        if near and near[0][0] == name[0]:
            raise ConfigError(
                f"{called} has `{name}`; did you mean `{near[0]}`? (If not, call it something else, or"
                f" `_{name}`.)"
            )


def list_protocol_members(protocol: type) -> Iterator[str]:
    """Yield the member names of a protocol."""
    yield from (name for name in vars(protocol) if not name.startswith("_"))
    yield from (name for name in vars(protocol).get("__annotations__", {}) if name not in vars(protocol))


def _check_shapes(made: object, offered: Mapping[str, type], called: str) -> None:
    """Refuse a method in place of a value, which would always be truthy, and a value in place of a method.

    None in place of a method is allowed: the object lacks an ability that its class has.
    """
    for name, ability in sorted(offered.items()):
        is_method = callable(getattr(ability, name, None))
        if callable(getattr(made, name)) != is_method and not (is_method and getattr(made, name) is None):
            wanted = "a method" if is_method else "a value or a property"
            raise ConfigError(
                f"`{name}` of {called} has to be {wanted} (agentsys.abilities.{ability.__name__})."
            )
