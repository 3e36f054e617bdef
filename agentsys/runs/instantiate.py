"""`instantiate`: the object that a config node describes, looked at for abilities that are misspelled."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from agentdojo.task_suite.task_suite import TaskSuite

from agentsys import abilities, contracts
from agentsys.base.object_import import build_object, load_target
from agentsys.errors import ConfigError

_REQUIRED: Mapping[str, type] = {
    "defense": contracts.Defense,
    "attack": contracts.Attack,
    "benchmark": contracts.Benchmark,
    "suite": TaskSuite,
}
"""Kind of object -> what it must be."""

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
"""Kind of object -> what it may be besides."""

READ_TOOLS = "read_tools"
"""An option of every defense that can (`abilities.ReadsTools`)."""
_SIMILARITY_CUTOFF = 0.8
"""Share of letters that two names have in common before one is taken for the other misspelled."""


def instantiate(group: str, config: Mapping[str, Any]) -> Any:
    """The object a config node describes: `_target_` called with the node's other keys.

    An option that is such a node itself (an attack's `base`), or a list with one in it, is built first.

    Raises:
        ConfigError: Naming the group, the target and what was wrong; an ability of the object that is
            misspelled, too.
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


def find_kept_folders(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Ask the class of a defense's config what it keeps (`KeepsFiles`); nothing if there is none."""
    found = load_class("defense", config)
    return found.keeps if isinstance(found, abilities.KeepsFiles) else {}


def find_folder_option(config: Mapping[str, Any]) -> str | None:
    """Ask the class of a defense's config for the option that takes its YAML's folder (`ReadsBesideYaml`)."""
    found = load_class("defense", config) if "_target_" in config else None
    return found.folder_option(config) if isinstance(found, abilities.ReadsBesideYaml) else None


def load_class(kind: str, config: Mapping[str, Any]) -> Any:
    """The class of a config, to be asked about its abilities; None where there is none."""
    try:
        return load_target(kind, config)
    except ConfigError:
        return None


def _build_option(group: str, option: Any) -> Any:
    if isinstance(option, list):
        return [_build_option(group, one) for one in option]
    return instantiate(group, option) if isinstance(option, dict) and "_target_" in option else option


def check_abilities(kind: str, made: object, called: str) -> None:
    """See that what an object may do besides is spelled and shaped as it is asked for.

    Without this, an ability under a slightly other name would never be used, and nothing would say so.

    Raises:
        ConfigError: If a public name is nearly that of an ability that the object has not, or an ability is
            a method where a value is asked for, or the other way round.
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
    """The names that a protocol asks for."""
    yield from (name for name in vars(protocol) if not name.startswith("_"))
    yield from (name for name in vars(protocol).get("__annotations__", {}) if name not in vars(protocol))


def _check_shapes(made: object, offered: Mapping[str, type], called: str) -> None:
    """A method in place of a value would always count as true, and a value cannot be called.

    None in place of a method says that the object lacks the ability that its class has.
    """
    for name, ability in sorted(offered.items()):
        is_method = callable(getattr(ability, name, None))
        if callable(getattr(made, name)) != is_method and not (is_method and getattr(made, name) is None):
            wanted = "a method" if is_method else "a value or a property"
            raise ConfigError(
                f"`{name}` of {called} has to be {wanted} (agentsys.abilities.{ability.__name__})."
            )
