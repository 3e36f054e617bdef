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
from dataclasses import replace
from functools import cache, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agentsys.base.grouping import group_by, join_names
from agentsys.base.object_import import find_registered_class, load_registered_classes, load_target
from agentsys.extensions import OUR_PACKAGES
from agentsys.records.case_row import NO_ATTACK, SEARCHED_ON_SUFFIX, CaseRow

NOT_IDENTITY: Mapping[str, set[str]] = {
    "model": {
        *("api_key_env", "location_env", "project_env", "timeout_s", "max_reply_bytes", "rate", "retry"),
        *("price", "cache", "prompt_cache", "context_tokens", "chat_family", "send_role", "simulated"),
        *("traces", "pipeline"),
    },
    "defense": set(),
    "attack": {"file", "artefact", "knowledge_file"},
    "benchmark": {"suites", "modules", "tasks", "attack_tools", "data", "source"},
}
"""Per group, the options that say how something is reached, not what is measured: changing one
neither renames a cell nor makes its finished cases stale. Of an attack's file and recorded runs the
content counts (`Settings.files`), of modules the source (`Settings.code`), not where they lie. Of a model's
chat family an attack that asks for it keeps what it was told (`agentsys.runs.compose`)."""

NOT_IN_NAME = {"base_url", "strict"}
"""The options of a model that do not rename a cell besides. Two servers of one model are the same row of a
table, but what one of them answered is not what the other would have."""

NOTED = frozenset({*(f"model.{option}" for option in NOT_IN_NAME), "versions.agentsys"})
"""Settings that are in an identity and in which the cases of one row may differ all the same. What a server says of
itself, and what the first question of a run finds out, stands in records and not among the settings."""

_DECIDED_WITHIN = {"seed": "defense", "files.model.traces": "attack"}
"""Setting -> what must be alike before two values of it are two settings: rows of other seeds can be compared, and
of recorded runs each attack has its own."""

_MAX_VALUE_CHARS = 24
_MAX_NAMED = 3
_SHORT_HASH = 4


class _Setting(NamedTuple):
    """One leaf of a config."""

    owner: str
    """The part of a row's name that it belongs to: `model`, `defense` or `attack`."""
    place: str
    """Where it stands in a config, e.g. `model.temperature`."""
    name: str
    """What a label calls it."""


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
    settings: Mapping[_Setting, str]


_key_of = attrgetter(
    *("benchmark", "version", "model", "simulated", "defense", "attack", "config_hash", "suite", "data_hash")
)


def separate_settings(cases: Sequence[CaseRow]) -> SeparatedSettings:
    """Tell cases of ours apart whose settings differ, or a suite's data; files of others say nothing of theirs."""
    # Of tens of thousands of cases some dozens.
    keys = {_key_of(case): case for case in cases if case.config_hash is not None and not case.foreign}
    own = [*keys.items()]
    labels: defaultdict[_Key, dict[str, str]] = defaultdict(dict)
    mixed: list[str] = []
    noted: list[str] = []
    unknown: set[str] = set()
    load_settings = cache(_load_settings)
    for model, found in group_by(own, lambda one: one[0][:4]).items():
        if len({key[6] for key, _ in found}) == 1:
            continue
        members = []
        for key, case in found:
            settings = load_settings(find_config(case.source, key[6]))
            if settings is None:
                unknown.add(key[6])
            else:
                members.append(_Member(key, key[4], key[5].removesuffix(SEARCHED_ON_SUFFIX), settings))
        for owner, name, scope in _split_scopes(members):
            inside = _select_settings(owner, scope)
            differing = _find_differing(inside)
            split = [one for one in differing if one.place not in NOTED]
            for member in inside if split else ():
                labels[member.key][owner] = _write_label(split, member.settings)
            for some, sentences in ((split, mixed), ([*set(differing) - set(split)], noted)):
                if some:
                    told = _describe_values(sorted(some), [member.settings for member in inside])
                    sentences.append(f"{' / '.join(filter(None, (model[2], name)))}: {told}")
    for (*_, model_name, _, defense, suite), found in group_by(
        own, lambda one: (*one[0][:5], one[0][7])
    ).items():
        setting = _Setting("model", f"data.{suite}", f"data of {suite}")
        data = {key: {setting: key[8]} for key, _ in found if key[8] is not None}
        if len({key[8] for key in data}) > 1:
            mixed.append(f"{model_name} / {defense}: {_describe_values([setting], [*data.values()])}")
            for key, settings in data.items():
                labels[key]["model"] = join_places(
                    labels[key].get("model"), _write_label([setting], settings)
                )
    told_apart = [_name_apart(case, labels.get(_key_of(case))) for case in cases] if labels else list(cases)
    return SeparatedSettings(told_apart, tuple(mixed), tuple(noted), frozenset(unknown))


def separate_unknown(cases: Sequence[CaseRow], unknown: Collection[str]) -> tuple[list[CaseRow], list[str]]:
    """Tell cases apart of which only the hashes show that their settings differ; and a sentence for each name."""
    if not unknown:
        return list(cases), []
    rows: defaultdict[_Key, set[str]] = defaultdict(set)
    for case in cases:
        if case.config_hash is not None and not case.foreign:
            rows[_row_of(case)].add(case.config_hash)
    short = {row: _shorten(found) for row, found in rows.items() if len(found) > 1 and found & {*unknown}}
    sentences = [
        f"{model} / {defense} / {attack}: {join_names(labels.values())} (these settings were not kept)"
        for (_, _, model, _, defense, attack, _), labels in short.items()
    ]

    def name_apart(case: CaseRow) -> CaseRow:
        label = None if case.foreign else short.get(_row_of(case), {}).get(case.config_hash or "")
        return replace(case, apart=join_places(case.apart, label)) if label else case

    return [name_apart(case) for case in cases] if short else list(cases), sentences


_row_of = attrgetter("benchmark", "version", "model", "simulated", "defense", "attack", "apart")


def join_places(*places: str | None) -> str:
    """Join the settings that tell a pipeline from others of its name to one text."""
    return ", ".join(filter(None, places))


def _shorten(hashes: Collection[str]) -> dict[str, str]:
    """Hash -> its beginning, as long as it takes to tell it from the others."""
    length = _SHORT_HASH
    while len({one[:length] for one in hashes}) < len(hashes):
        length += 1
    return {one: f"config {one[:length]}" for one in sorted(hashes)}


def _name_apart(case: CaseRow, label: Mapping[str, str] | None) -> CaseRow:
    """Put what tells the settings of a case from others into its names."""
    if label is None:
        return case
    suffix = SEARCHED_ON_SUFFIX if case.attack.endswith(SEARCHED_ON_SUFFIX) else ""
    defense, attack = (f" [{label[part]}]" if label.get(part) else "" for part in ("defense", "attack"))
    return replace(
        case,
        apart=label.get("model") or case.apart,
        defense=f"{case.defense}{defense}",
        attack=f"{case.attack.removesuffix(suffix)}{attack}{suffix}",
    )


def _split_scopes(members: Sequence[_Member]) -> Iterator[tuple[str, str, list[_Member]]]:
    """Group the cases in which each kind of setting must agree: a model's in all its cases, a defense's in its own."""
    yield "model", "", list(members)
    for defense, inside in group_by(members, lambda one: one.defense).items():
        yield "defense", defense, inside
    for attack, inside in group_by(members, lambda one: one.attack).items():
        if attack != NO_ATTACK:
            yield "attack", attack, inside


def _select_settings(owner: str, members: Sequence[_Member]) -> list[_Member]:
    """The settings of one part of the name alone; an option that a config does not name yet has its default."""
    listed = dict.fromkeys(one for member in members for one in member.settings if one.owner == owner)

    def select(settings: Mapping[_Setting, str]) -> Mapping[_Setting, str]:
        classes = {one.place: value for one, value in settings.items() if one.place.endswith("_target_")}
        found = {}
        for one in listed:
            parent, _, option = one.place.rpartition(".")
            if one in settings:
                found[one] = settings[one]
            elif one.place.partition(".")[0] in _GROUPS:
                defaults = _load_defaults(classes.get(f"{parent}._target_", ""))
                found[one] = _normalize(defaults.get(option))
        return found

    return [member._replace(settings=select(member.settings)) for member in members]


@lru_cache(maxsize=256)
def _load_defaults(target: str) -> Mapping[str, Any]:
    """Option of a class of ours -> its default. A user's is not imported: a table runs nobody's code."""
    path = next((one.today for one in load_registered_classes().values() if one.name == target), None)
    with suppress(Exception):  # an extra is not installed: then nothing is known of its defaults
        parameters = inspect.signature(load_target("", {"_target_": path})).parameters
        return {name: one.default for name, one in parameters.items() if one.default is not one.empty}
    return {}


def _find_differing(members: Sequence[_Member]) -> list[_Setting]:
    """The settings that have several values; a config that says nothing of one agrees with every value."""
    values: defaultdict[tuple[_Setting, str], set[str]] = defaultdict(set)
    for member in members:
        for setting, value in member.settings.items():
            within = _DECIDED_WITHIN.get(setting.place)
            values[setting, getattr(member, within) if within else ""].add(value)
    return [*dict.fromkeys(setting for (setting, _), found in values.items() if len(found) > 1)]


def _describe_values(settings: Sequence[_Setting], configs: Sequence[Mapping[_Setting, str]]) -> str:
    """E.g. `temperature (0, 0.9)`; of many settings the first."""

    def list_values(setting: _Setting) -> str:
        values = dict.fromkeys(config[setting] for config in configs if setting in config)
        return ", ".join(map(_shorten_value, values))

    return join_names((f"{one.name} ({list_values(one)})" for one in settings), _MAX_NAMED)


def _write_label(split: Sequence[_Setting], settings: Mapping[_Setting, str]) -> str:
    """Write the settings that tell a config from others, e.g. `temperature=0.9`."""
    told = [f"{one.name}={_shorten_value(settings[one])}" for one in split if one in settings]
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


def _load_settings(path: str | None) -> Mapping[_Setting, str] | None:
    """The leaves of a stored config; None where there is none, or none that can be read."""
    if path is None:
        return None
    try:
        stored = {"seed": 0, **orjson.loads(Path(path).read_bytes())}
        leaves = {place: _normalize(value) for place, value in _flatten(stored)}
        return {_name_setting(place, stored): value for place, value in leaves.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):  # anybody may have written it
        return None


def _flatten(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict) and (value or not prefix):
            yield from _flatten(value, f"{prefix}{key}.")
        elif not (prefix.startswith("others.") and key in NOT_IN_NAME):
            yield f"{prefix}{key}", find_registered_class(value).name if key == "_target_" else value


def _normalize(value: Any) -> str:
    """A value as text, the same for what means the same: 0 and 0.0; none, false, and nothing in it."""
    if isinstance(value, tuple | frozenset):
        value = list(value)
    if value is None or value is False or value in ("", [], {}):
        return "not set"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


_GROUPS = ("model", "defense", "attack", "benchmark")
_KINDS = {"files": "content of ", "code": "code of ", "packages": "package ", "benchmark": "benchmark."}
_SPLIT_BY_OPTION = ("defense", "attack")
"""The parts of a row's name besides the model's, which has whatever is not theirs."""


def _name_setting(place: str, stored: Mapping[str, Any]) -> _Setting:
    """Find the part of a name that a setting belongs to, and word it."""
    group, _, path = place.partition(".")
    owner = group
    if group == "files":
        owner, _, path = path.partition(".")
    elif group == "others":
        owner = "attack" if path.partition(".")[0] == stored.get("attack", {}).get("attacker") else "model"
    elif group in ("code", "packages"):
        owner = _find_owner(path, stored)
    elif group == "attacker":
        owner = "attack"
    name = f"{_KINDS.get(group, '')}{(path or group).replace('_target_', 'class')}"
    return _Setting(owner if owner in _SPLIT_BY_OPTION else "model", place, name)


def _find_owner(file: str, stored: Mapping[str, Any]) -> str:
    """Whose code a file or a package is: of the part that names its module, else of the first with code of its own."""
    module = file.partition("/")[0].removesuffix(".py")
    modules = {
        group: {*re.findall(r'"_target_": "(\w+)', json.dumps(stored.get(group)))}.difference(OUR_PACKAGES)
        for group in ("defense", "attack", "model")
    }
    own = [group for group, named in modules.items() if named]
    return next((group for group in own if module in modules[group]), own[0] if own else "model")
