"""`agentsys init`: writes a YAML for the user's own model, tries the model's abilities, prints the next command."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
import yaml

from agentsys.base.config_catalog import list_config_names, load_config, make_card_name, make_server_card
from agentsys.cli.cli_output import ConfigDirOption, print_line
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from agentsys.models.chat import ChatModel

_FOUND = {"base_url", "api_key_env", "context_tokens", "tools", "text_protocol", "strip_think"}
_NATIVE = "make a tool call"
_JSON = "write JSON by a schema"
_CODE = "write one code block"
_NEEDS: dict[str, tuple[str, ...]] = {
    "none": (_NATIVE, "stop calling"),
    "spotlighting": (_NATIVE, "stop calling"),
    "tool_filter": (_NATIVE, "stop calling"),
    "melon": (_NATIVE, "stop calling"),
    "progent": (_NATIVE, "stop calling", _JSON),
    "drift": (_NATIVE, "stop calling", _JSON),
    "camel": (_CODE, _JSON),
    "agentsys": (
        *(_NATIVE, "stop calling", "declare an intent", "extract fields", "judge commands"),
        *("find planted orders", "sort tools"),
    ),
}
"""Defense -> the abilities without which its row shows the model's failure and not the defense."""


class Ability(NamedTuple):
    """Result of one test."""

    name: str
    passed: bool
    said: str
    """What the model answered, or the reason; empty where that does not help."""


def init_command(
    url: Annotated[
        str | None, typer.Option("--url", help="The server, e.g. http://127.0.0.1:8000/v1 (OpenAI's API).")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="The model's id on the server.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What tables call it; default: the end of its id.")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option("--key-env", help="Environment variable that holds the server's key.")
    ] = None,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Config folder to write into.")] = Path(
        "conf"
    ),
    check: Annotated[
        bool, typer.Option("--check", help="Check this installation: versions, keys, extras, one case.")
    ] = False,
    ping: Annotated[
        bool, typer.Option("--ping", help="With --check: ask each model that has its key one question.")
    ] = False,
    config_dir: ConfigDirOption = None,
    form: Annotated[
        Literal["table", "json"], typer.Option("--format", help="With --check: how to print.")
    ] = "table",
) -> None:
    """Write the YAML of a model of yours, try what it is able to, and say what to run. --check: the installation."""
    if check:
        from agentsys.cli.doctor_command import print_checks

        print_checks(config_dir or [], ping=ping, as_json=form == "json")
        return
    values = _collect_values(url, model, name, key_env)
    file = _write_yaml(to, values)
    abilities, values = _try_abilities(values)
    _write_yaml(to, values)
    for one in abilities:
        told = f": {one.said}" if one.said and not one.passed else ""
        print_line(escape_to_line(f"{'+' if one.passed else '-'} {one.name}{told}"), hang="    ")
    able = {one.name for one in abilities if one.passed}
    fit = [defense for defense, needs in _NEEDS.items() if able.issuperset(needs)]
    print_line(f"Can carry: {', '.join(fit) or 'no defense, and no plain agent either'}.")
    for defense, needs in _NEEDS.items():
        if defense not in fit:
            print_line(
                f"Would be broken: {defense} (cannot {', '.join(need for need in needs if need not in able)})."
            )
    print_line(f"Wrote {escape_to_line(str(file))}; its rows are called {values['name']}.")
    if "none" in fit:
        _print_next_steps(to, values["name"], [one for one in ("none", "agentsys") if one in fit])
    else:
        print_line(
            "Start the server with the model's tool-call parser, or take another model; then run init again."
        )


def _collect_values(
    url: str | None, model: str | None, name: str | None, key_env: str | None
) -> dict[str, Any]:
    url = url or _ask("--url", "The server's address (http://127.0.0.1:8000/v1)")
    if not re.fullmatch(r"https?://[^\s/]+.*", url):
        raise ConfigError(
            f"--url {url} is no address. For example: agentsys init --url http://127.0.0.1:8000/v1"
        )
    if key_env is not None and not os.environ.get(key_env):
        raise Unavailable(f"{key_env} is not set. Set it first: export {key_env}=...", needs=key_env)
    offered = _list_models(url, key_env)
    model = model or (next(iter(offered)) if len(offered) == 1 else None)
    if model is None:
        listed = f" It has: {', '.join(list(offered)[:8])}." if offered else ""
        model = _ask("--model", f"The model's id.{listed}")
    name = name or make_card_name(model)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ConfigError(
            f"--name {name}: ASCII letters, digits, '.', '_' and '-' only. Give another: --name NAME"
        )
    cards = [load_config("model", each) for each in list_config_names("model")]
    card = make_server_card(model, url, name, cards)
    context = offered.get(model) or card["context_tokens"]
    return card | {"api_key_env": key_env, "context_tokens": context, "tools": "native"}


def _ask(option: str, question: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigError(
            f"Missing {option}. {question.rstrip('.')}. For example: "
            "agentsys init --url http://127.0.0.1:8000/v1 --model Qwen/Qwen2.5-7B-Instruct"
        )
    return str(typer.prompt(escape_to_line(question)))


_LIST_S, _LIST_BYTES = 20.0, 1 << 22
"""Most seconds for a server's list of models, and bytes of it."""


def _list_models(url: str, key_env: str | None) -> dict[str, int | None]:
    """Id -> size of its context, where the server tells (vLLM does); empty where it lists none.

    Raises:
        Unavailable: If nobody is there.
        ConfigError: If the address is none.
    """
    import httpx

    from agentsys.models.chat import ErrorKind, ModelError
    from agentsys.models.providers.bounded_http import ExchangeLimits, make_bounded_client
    from agentsys.models.providers.wire_parts import parse_json

    key = os.environ[key_env] if key_env else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        if httpx.URL(url).scheme not in ("http", "https"):
            raise httpx.InvalidURL("it begins with neither http:// nor https://")
        with closing(make_bounded_client(httpx.Client, ExchangeLimits(_LIST_S, _LIST_BYTES, key))) as client:
            body = client.get(f"{url.rstrip('/')}/models", headers=headers).content
        sizes = {str(one["id"]): one.get("max_model_len") for one in parse_json(body)["data"]}
    except httpx.InvalidURL as slip:
        raise ConfigError(f"--url {url} is no address: {slip}.") from None
    except ModelError as slip:
        if slip.kind in (ErrorKind.CONNECTION, ErrorKind.TIMEOUT):
            # Nobody is there: the questions that follow would be retried for minutes.
            raise Unavailable(
                f"No server answers at {url} ({slip}). Start it, or mend --url.", needs=url
            ) from None
        return {}
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return {}
    return {name: size if isinstance(size, int) and size > 0 else None for name, size in sizes.items()}


def _write_yaml(to: Path, values: Mapping[str, Any]) -> Path:
    """Write `model/NAME.yaml`; a file of another model is never replaced, and of this one's only what is found out."""
    name = values["name"]
    if name in list_config_names("model"):
        raise ConfigError(f"'{name}' is the name of a shipped model. Give another one: --name my-{name}")
    file = to / "model" / f"{name}.yaml"
    if file.exists():
        try:
            there = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            there = None
        if not isinstance(there, dict) or there.get("model_id") != values["model_id"]:
            raise ConfigError(f"{file} is another model's. Give another name: --name {name}-2")
        values = {**values, **{key: value for key, value in there.items() if key not in _FOUND}}
    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
    head = f"# {name}, as `agentsys init` found it. price: {{prompt: ..., completion: ..., as_of: ...}} gives costs\n"
    file.write_text(head + text, encoding="utf-8")
    return file


def _try_abilities(values: dict[str, Any]) -> tuple[list[Ability], dict[str, Any]]:
    """Ask the model; if its server parses no calls, through text, one protocol after another.

    Returns:
        What was found, and the YAML's values with the way of calling that works.

    Raises:
        Unavailable: If the model cannot be asked.
    """
    from agentsys.models.chat import ModelError, system
    from agentsys.models.reply_checks import CONNECTION_QUESTION, is_expected_call
    from agentsys.models.text_tools import TEXT_PROTOCOLS
    from agentsys.runs.preflight import find_first_trouble

    if values["simulated"]:
        print_line("It is simulated, a script and not an LLM: it plays the role of whoever asks.")
        return [Ability(name, True, "") for name in dict.fromkeys(chain(*_NEEDS.values()))], values
    model = _build_model(values)
    trouble, odd, thoughts = find_first_trouble([model], None)
    if trouble is not None and "tool" not in trouble.needs:
        raise trouble
    if thoughts:
        print_line("Its text begins with thoughts, which its server does not take off (strip_think: true).")
        model = _build_model(values := values | {"strip_think": True})
    if trouble is None and not odd:
        print_line("Its server takes tools and parses calls (tools: native).")
        return [Ability(_NATIVE, True, ""), *_ask_all(model)], values
    # The question before every run, with a system message: tools through text stand in it.
    told = [system("You work with tools."), *CONNECTION_QUESTION.messages]
    for protocol in TEXT_PROTOCOLS:
        tried = values | {"tools": "text", "text_protocol": protocol}
        texting = _build_model(tried)
        try:
            called = is_expected_call(texting.complete(replace(CONNECTION_QUESTION, messages=told)))
        except ModelError:
            continue
        if called:
            print_line(f"Its server parses no calls; they go through text (text_protocol: {protocol}).")
            return [Ability(_NATIVE, True, ""), *_ask_all(texting)], tried
    return [Ability(_NATIVE, False, "neither natively nor through text"), *_ask_all(model)], values


def _build_model(values: Mapping[str, Any]) -> ChatModel:
    from agentsys.base import config_catalog
    from agentsys.models.build_model import build_stack

    stack = build_stack(
        values, cache_dir=None, load_model=lambda other: config_catalog.load_config("model", other)
    )
    return stack.list_probe_models()[0]


def _ask_all(model: ChatModel) -> list[Ability]:
    from agentsys.models.chat import ModelError

    found: list[Ability] = []
    for ask in (_write_json, _write_code, _run_agentsys_tests):
        try:
            found += ask(model)
        except ModelError as error:
            found.append(Ability(ask.__name__.strip("_").replace("_", " "), False, str(error)))
    return found


def _ask_model(model: ChatModel, question: str) -> str:
    from agentsys.models.chat import ChatRequest, text_of, user

    return text_of(model.complete(ChatRequest([user(question)])).message)


def _write_json(model: ChatModel) -> list[Ability]:
    from agentsys.models.loose_json import find_object_with

    schema = {"type": "object", "properties": {"city": {"type": "string"}, "year": {"type": "integer"}}}
    question = (
        "Reply with one JSON object that fits this schema and nothing else: "
        f"{json.dumps(schema)}. The text: The tower in Leeds was finished in 1931."
    )
    said = _ask_model(model, question)
    value = find_object_with(said, ("city", "year"))
    right = value is not None and value.get("city") == "Leeds" and value.get("year") == 1931
    return [Ability(_JSON, right, said[:120])]


def _write_code(model: ChatModel) -> list[Ability]:
    said = _ask_model(
        model, "Write Python that prints the sum of 17 and 25, in exactly one fenced code block (```python)."
    )
    blocks = re.findall(r"```(?:python)?\s*\n(.*?)```", said, re.DOTALL)
    right = len(blocks) == 1 and "print" in blocks[0]
    return [Ability(_CODE, right, said[:120])]


def _run_agentsys_tests(model: ChatModel) -> list[Ability]:
    """The roles' own prompts; each of their tests has a name that `_NEEDS` knows."""
    from agentsys.defense.ability_tests import run_ability_tests

    tests = run_ability_tests(model)
    return [Ability(one.ability, one.passed, one.said) for one in tests if one.ability != _NATIVE]


def _print_next_steps(to: Path, name: str, defenses: list[str]) -> None:
    from agentsys.runs.preview import estimate_costs
    from agentsys.runs.run_session import prepare_session

    chosen = f"model={name} defense={','.join(defenses)}"
    plan = [*chosen.split(), "attack=none,important_instructions", "limit_per_suite=3"]
    session = prepare_session(plan, config_dirs=[to], rehearsal=True)
    estimates = estimate_costs(session.plan.open_jobs, {})
    counts = session.plan.open_jobs.count_by_labels()
    for defense in defenses:
        cells = [labels for labels in estimates if defense in labels]
        count = sum(counts[labels] for labels in cells)
        tokens = 100 * sum(estimates[labels].tokens for labels in cells) / max(1, count)
        print_line(
            f"A hundred cases of {defense}: about {tokens / 1e6:.1f}M tokens (simulated; up to twice that)."
        )
    line = shlex.join(["--config-dir", str(to), *plan, f"logdir=results/runs/{name}"])
    print_line(f"Next: agentsys run {line}")
