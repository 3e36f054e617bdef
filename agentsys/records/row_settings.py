"""`separate_settings`: cases of ours that share their names and not their settings, told apart by what differs.

A name tells what was chosen, not what the choice held that day: a YAML is edited, a class gets other code. What a
case ran with is kept beside the records under its `config_hash`. That hash is another one for each attack and for
each release, so the settings themselves are compared, and only those that decide a number.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agentsys.base.grouping import group_by, join_names
from agentsys.base.object_import import find_registered_class, load_registered_classes, load_target
from agentsys.records.case_row import NO_ATTACK, SEARCHED_ON_SUFFIX, CaseRow

NOTED = frozenset({"model.base_url", "model.strict", "versions.agentsys"})
"""Settings in which the cases of one row may differ: where a model is served, whether a replay is strict, and our
release. All others that decide no number are in no identity, and so in no hash (agentsys.runs.settings.NOT_IDENTITY):
workers, paths, prices, labels, waits. What a server says of itself, and what the first question of a run finds out,
stands in records and not among the settings."""

_GROUPS = ("model", "defense", "attack", "benchmark")
_UNSAID = object()
"""Stands where a config says nothing of a thing that other configs need not have: a file, another role's model."""
_DEFAULTS: tuple[object, ...] = ("", [], {})
_MAX_VALUE_CHARS = 24
_MAX_NAMED = 3
_SHORT_HASH = 4


class _Entry(NamedTuple):
    """One setting."""

    owner: str
    """The part of a row's name that it belongs to: `model`, `defense` or `attack`."""
    place: str
    """Where it stands in a config, e.g. `model.temperature`."""
    name: str
    """What a label calls it."""
    within: str = ""
    """It is compared only among configs that have this in common."""


@dataclass(frozen=True)
class _Config:
    """A resolved config, taken apart."""

    nodes: Mapping[str, Mapping[str, Any]]
    options: Mapping[_Entry, Any]
    """Options of model, defense, attack and benchmark: where one is not there, its default holds."""
    facts: Mapping[_Entry, Any]
    """Everything else: where one is not there, nothing is known."""

    def read(self, entry: _Entry) -> Any:
        """The value of a setting as it is compared."""
        if entry in self.facts:
            return _normalize(self.facts[entry])
        group, _, path = entry.place.partition(".")
        if group not in _GROUPS:
            return _UNSAID
        known = entry in self.options
        return _normalize(self.options[entry] if known else _find_default(self.nodes[group], path))


class SeparatedSettings(NamedTuple):
    """Cases told apart, and what was found of their settings."""

    cases: list[CaseRow]
    mixed: tuple[str, ...]
    """A sentence for each name under which there are several settings."""
    noted: tuple[str, ...]
    """A sentence for each name under which settings differ that decide nothing."""
    unknown_hashes: frozenset[str]
    """Hashes of settings that were not kept."""


_Key = tuple[Any, ...]
"""Cases that are looked at together: `_key_of` of each."""


class _Member(NamedTuple):
    """The cases of one name and one config."""

    key: _Key
    defense: str
    attack: str
    """Whether its text was searched on these cases or on others."""
    config: _Config


_key_of = attrgetter(
    *("benchmark", "version", "model", "simulated", "defense", "attack", "config_hash", "suite", "data_hash")
)


def separate_settings(cases: Sequence[CaseRow]) -> SeparatedSettings:
    """Tell cases of ours apart whose settings differ, or a suite's data; files of others say nothing of theirs."""
    some = {_key_of(case): case for case in cases}  # of tens of thousands of cases some dozens
    own = {key: case for key, case in some.items() if case.config_hash is not None and not case.foreign}
    found = _Separation(own)
    for model, keys in group_by(own, lambda key: key[:4]).items():
        if len({key[6] for key in keys}) > 1:
            found.compare_configs(model, keys)
    for (*_, model_name, _, defense, suite), keys in group_by(own, lambda key: (*key[:5], key[7])).items():
        found.compare_data(f"{model_name} / {defense}", suite, keys)
    labels = found.labels
    told = [_name_apart(case, labels.get(_key_of(case))) for case in cases] if labels else list(cases)
    return SeparatedSettings(told, tuple(found.mixed), tuple(found.noted), frozenset(found.unknown_hashes))


class _Separation:
    """What is found while configs are compared.

    Args:
        cases: One case for each of the keys.
    """

    def __init__(self, cases: Mapping[_Key, CaseRow]) -> None:
        self._cases = cases
        self.labels: defaultdict[_Key, dict[str, str]] = defaultdict(dict)
        """Cases -> part of their row's name -> what is added to it."""
        self.mixed: list[str] = []
        self.noted: list[str] = []
        self.unknown_hashes: set[str] = set()

    def compare_configs(self, model: _Key, keys: Sequence[_Key]) -> None:
        """Compare the settings of all cases of a model's name."""
        members = []
        for key in keys:
            config = _load_config(find_config(self._cases[key].source, key[6]))
            if config is None:
                self.unknown_hashes.add(key[6])
            else:
                members.append(_Member(key, key[4], key[5].removesuffix(SEARCHED_ON_SUFFIX), config))
        for owner, scope, inside in _split_scopes(members):
            values = {entry: some for entry, some in _find_differing(inside).items() if entry.owner == owner}
            split = [entry for entry in values if entry.place not in NOTED]
            for member in inside if split else ():
                self.labels[member.key][owner] = _write_label(split, member.config)
            for entries, sentences in ((split, self.mixed), (values.keys() - split, self.noted)):
                if entries:
                    sentences.append(
                        f"{' / '.join((model[2], *scope))}: {_describe(sorted(entries), values)}"
                    )

    def compare_data(self, name: str, suite: str, keys: Sequence[_Key]) -> None:
        """Compare the data that a row's cases of one suite were run on."""
        hashes = {key[8] for key in keys if key[8] is not None}
        if len(hashes) > 1:
            entry = _Entry("model", f"data.{suite}", f"data of {suite}")
            self.mixed.append(f"{name}: {_describe([entry], {entry: sorted(hashes)})}")
            for key in keys:
                told = f"{entry.name}={_shorten_value(key[8])}" if key[8] else None
                self.labels[key]["model"] = join_places(self.labels[key].get("model"), told)


def separate_unknown(cases: Sequence[CaseRow], unknown: Collection[str]) -> tuple[list[CaseRow], list[str]]:
    """Tell cases apart of which only the hashes show that their settings differ; and a sentence for each name."""
    cells: defaultdict[tuple[Any, ...], set[str]] = defaultdict(set)
    for case in cases if unknown else ():
        if case.config_hash is not None and not case.foreign:
            cells[_cell_of(case)].add(case.config_hash)
    several = {
        cell: found for cell, found in cells.items() if len(found) > 1 and not found.isdisjoint(unknown)
    }
    if not several:
        return list(cases), []
    sentences = [
        f"{model} / {defense} / {attack}: {join_names(_shorten(found).values())} (these settings were not kept)"
        for (_, _, model, _, defense, attack, _), found in several.items()
    ]
    told = [
        replace(
            case, apart=join_places(case.apart, _shorten(several[_cell_of(case)])[case.config_hash or ""])
        )
        if _cell_of(case) in several and not case.foreign
        else case
        for case in cases
    ]
    return told, sentences


_cell_of = attrgetter("benchmark", "version", "model", "simulated", "defense", "attack", "apart")


def join_places(*places: str | None) -> str:
    """What tells a pipeline from others of its name, in one text."""
    return ", ".join(filter(None, places))


def _shorten(hashes: Collection[str]) -> dict[str, str]:
    """Hash -> its beginning, as long as it takes to tell it from the others."""
    length = _SHORT_HASH
    while len({one[:length] for one in hashes}) < len(hashes):
        length += 1
    return {one: f"config {one[:length]}" for one in sorted(hashes)}


def _name_apart(case: CaseRow, label: Mapping[str, str] | None) -> CaseRow:
    if label is None:
        return case
    changed: dict[str, Any] = {}
    if label.get("model"):
        changed["apart"] = label["model"]
    if label.get("defense"):
        changed["defense"] = f"{case.defense} [{label['defense']}]"
    if label.get("attack"):
        suffix = SEARCHED_ON_SUFFIX if case.attack.endswith(SEARCHED_ON_SUFFIX) else ""
        changed["attack"] = f"{case.attack.removesuffix(suffix)} [{label['attack']}]{suffix}"
    return replace(case, **changed) if changed else case


def _split_scopes(members: Sequence[_Member]) -> Iterator[tuple[str, tuple[str, ...], list[_Member]]]:
    """What each kind of setting must agree among: a model's in all of its cases, a defense's in the defense's."""
    yield "model", (), list(members)
    for defense in dict.fromkeys(member.defense for member in members):
        yield "defense", (defense,), [member for member in members if member.defense == defense]
    for attack in dict.fromkeys(member.attack for member in members if member.attack != NO_ATTACK):
        yield "attack", (attack,), [member for member in members if member.attack == attack]


def _find_differing(members: Sequence[_Member]) -> dict[_Entry, list[str]]:
    """Setting -> its values, of those that have several."""
    configs = list({id(member.config): member.config for member in members}.values())
    entries = dict.fromkeys(entry for one in configs for entry in (*one.options, *one.facts))
    found = {}
    for entry in entries:
        values = dict.fromkeys(value for one in configs if (value := one.read(entry)) is not _UNSAID)
        if len(values) > 1:
            found[entry] = list(values)
    return found


def _describe(entries: Sequence[_Entry], values: Mapping[_Entry, Sequence[str]]) -> str:
    """E.g. `two settings under one name: temperature (0, 0.9)`; of many the first."""
    told = [f"{one.name} ({', '.join(map(_shorten_value, values[one]))})" for one in entries]
    return join_names(told, _MAX_NAMED)


def _write_label(entries: Sequence[_Entry], config: _Config) -> str:
    """What a config holds of the settings that tell it from others, e.g. `temperature=0.9`."""
    places = {entry.place: entry for entry in config.facts}
    values = {
        one.name: config.read(one if one in config.facts else places.get(one.place, one)) for one in entries
    }
    told = [f"{name}={_shorten_value(value)}" for name, value in values.items() if value is not _UNSAID]
    if len(told) <= _MAX_NAMED:
        return ", ".join(told)
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:_SHORT_HASH]
    return f"{', '.join(told[:_MAX_NAMED])} and {len(told) - _MAX_NAMED} more ({digest})"


def _shorten_value(value: str) -> str:
    """A value as a label has it: a longer one is cut, and ends in a digest of the whole."""
    if len(value) <= _MAX_VALUE_CHARS:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "backslashreplace")).hexdigest()[:_SHORT_HASH]
    return f"{value[: _MAX_VALUE_CHARS // 2]}...{digest}"


def _normalize(value: Any) -> Any:
    """A value as text, the same for what means the same: 0 and 0.0; none, false, and nothing in it."""
    if value is _UNSAID:
        return value
    if isinstance(value, tuple | frozenset):
        value = list(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or value is False or value in _DEFAULTS:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _find_default(node: Mapping[str, Any], path: str) -> Any:
    """The value that an option has where a config is from before it: its class says, if it is one of ours."""
    *parents, option = path.split(".")
    for parent in parents:
        node = node.get(parent) or {}
        if not isinstance(node, Mapping):
            return None
    return _load_defaults(str(node.get("_target_"))).get(option)


@lru_cache(maxsize=256)
def _load_defaults(target: str) -> Mapping[str, Any]:
    """Option of a class -> its default. A class of the user's is not imported: a table runs nobody's code."""
    name = find_registered_class(target).name
    path = next((one.today for one in load_registered_classes().values() if one.name == name), None)
    with suppress(Exception):  # an extra is not installed: then nothing is known of its defaults
        parameters = inspect.signature(load_target("", {"_target_": path})).parameters
        return {
            name: one.default
            for name, one in parameters.items()
            if one.default is not inspect.Parameter.empty
        }
    return {}


_HASH = re.compile(r"[0-9a-f]{8,64}")
_LEVELS_TO_LOGDIR = 8
"""Folders to go up from a record, at most; our layout has five."""


def find_config(source: str, config_hash: str) -> str | None:
    """Find the resolved config of a record: beside the runs, under its hash; None where there is none."""
    # The hash comes out of a stored file: anything else than a hash could lead out of the folder.
    if not _HASH.fullmatch(config_hash):
        return None
    folder = _find_configs(str(Path(source).parent))
    return None if folder is None else str(Path(folder, f"{config_hash}.config"))


@lru_cache(maxsize=4096)
def _find_configs(folder: str) -> str | None:
    places = [Path(folder), *Path(folder).parents][:_LEVELS_TO_LOGDIR]
    folders = (place / ".agentsys" / "configs" for place in places)
    return next((str(place) for place in folders if place.is_dir()), None)


def _load_config(path: str | None) -> _Config | None:
    """A stored config, taken apart; None where there is none, or none that can be read."""
    if path is None:
        return None
    try:
        return _parse_config(orjson.loads(Path(path).read_bytes()))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):  # anybody may have written it
        return None


def _parse_config(stored: Any) -> _Config:
    nodes = {group: dict(stored.get(group) or {}) for group in _GROUPS}
    options: dict[_Entry, Any] = {}
    for group, node in nodes.items():
        owner, shown = ("model", "benchmark.") if group == "benchmark" else (group, "")
        for path, value in _flatten(node):
            options[_Entry(owner, f"{group}.{path}", f"{shown}{path.replace('_target_', 'class')}")] = value
    return _Config(nodes, options, {_Entry(*entry): value for *entry, value in _list_facts(stored, nodes)})


def _list_facts(stored: Mapping[str, Any], nodes: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Owner, place, name, (within,) and value of what a config holds besides the four groups."""
    defense, attack = (json.dumps(nodes[group], sort_keys=True) for group in ("defense", "attack"))
    # A seed decides draws: rows of other seeds can be compared, cases of one row are to have one.
    yield "model", "seed", "seed", defense, stored.get("seed", 0)
    for package, version in (stored.get("versions") or {}).items():
        yield "model", f"versions.{package}", package, version
    if "attacker" in stored:
        yield "attack", "attacker", "attacker", stored["attacker"]
    for name, node in (stored.get("others") or {}).items():
        owner = "attack" if name == nodes["attack"].get("attacker") else "model"
        for path, value in _flatten(node):
            if f"model.{path}" not in NOTED:
                yield owner, f"others.{name}.{path}", f"{name}.{path}", value
    for option, digest in (stored.get("files") or {}).items():
        owner, _, path = option.partition(".")
        owner = owner if owner in _GROUPS[:3] else "model"
        # Of recorded runs each attack has its own.
        within = (attack,) if option == "model.traces" else ()
        yield owner, f"files.{option}", f"content of {path}", *within, digest
    for group, kind in (("code", "code of "), ("packages", "package ")):
        for name, digest in (stored.get(group) or {}).items():
            yield _find_owner(name, nodes), f"{group}.{name}", f"{kind}{name}", digest


def _find_owner(name: str, nodes: Mapping[str, Any]) -> str:
    """Whose code a file or a package is: of the part that names its module, else of the first with code of its own."""
    targets = {group: [*_list_targets(nodes[group])] for group in _GROUPS}
    own = {
        group: {one.partition(".")[0] for one in found if not _OURS.match(one)}
        for group, found in targets.items()
    }
    top = name.partition("/")[0].removesuffix(".py")
    ordered = ("defense", "attack", "model", "benchmark")
    named = [group for group in ordered if top in own[group]] or [group for group in ordered if own[group]]
    return named[0] if named and named[0] != "benchmark" else "model"


_OURS = re.compile(r"(agentsys|baselines)[.:]")


def _list_targets(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("_target_"), str):
            yield value["_target_"]
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _list_targets(inner)


def _flatten(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", find_registered_class(value).name if key == "_target_" else value
