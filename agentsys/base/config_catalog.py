"""The catalog of configs: the names in the config groups, read from YAML files without composing them.

Models by prefix are in it too: `openai/gpt-5-mini` or `vllm/NAME@URL` -> the card of a model that needs no YAML.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentsys.errors import ConfigError, require_known_name, unknown_name
from agentsys.extensions import list_shipped_config_dirs, shipped_config_dir

CONFIG_GROUPS = {
    "models": "model",
    "defenses": "defense",
    "attacks": "attack",
    "benchmarks": "benchmark",
    "experiments": "experiment",
    "metrics": "metric",
}
"""Name of a list on the command line -> config group, which is the folder's name."""


def list_config_names(group: str, config_dirs: Sequence[Path] = ()) -> list[str]:
    """List the names in a group, shipped and the user's own, sorted.

    Raises:
        ConfigError: If one of `config_dirs` is not a folder, or has a config with the name of a shipped one, which
            Hydra would silently prefer.
    """
    shipped = {path.stem for root in list_shipped_config_dirs() for path in (root / group).glob("*.yaml")}
    names = set(shipped)
    for root in config_dirs:
        if not root.is_dir():
            raise ConfigError(f"--config-dir {root}: no such folder.")
        own = {path.stem for path in (root / group).glob("*.yaml")}
        for name in sorted(own & shipped):
            raise ConfigError(f"{root / group / name}.yaml has the name of a shipped {group}; rename it.")
        names |= own
    return sorted(names)


def read_description(group: str, name: str, config_dirs: Sequence[Path] = ()) -> str:
    """Return a config's first comment line, its one-line description; `""` if it has none.

    Raises:
        ConfigError: If there is no such config.
    """
    for line in _read_config(find_config_file(group, name, config_dirs)).splitlines():
        text = line.strip()
        if not text or text.startswith("# @"):  # A directive to Hydra, as in `# @package _global_`.
            continue
        if not text.startswith("#"):
            break
        if text.lstrip("# "):
            return text.lstrip("# ")
    return ""


def load_config(group: str, name: str, config_dirs: Sequence[Path] = ()) -> dict[str, Any]:
    """Load a config's own file, with nothing merged and nothing resolved; or the card of a model by prefix.

    Raises:
        ConfigError: If there is no such config, or it is not a YAML mapping.
    """
    import yaml  # here, because tables of stored runs seldom need it and should start fast

    if group == "model" and is_prefixed(name):
        names = list_config_names(group, config_dirs)
        return load_prefixed_card(name, (load_config(group, each, config_dirs) for each in names))
    path = find_config_file(group, name, config_dirs)
    try:
        values = yaml.load(_read_config(path), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a mapping of options.")
    return values


def list_setting_names() -> list[str]:
    """List the keys of a run's settings (groups and plain values), which no command has as options."""
    import yaml

    top = yaml.safe_load(_read_config(shipped_config_dir() / "config.yaml"))
    chosen = [group for choice in top["defaults"] if isinstance(choice, dict) for group in choice]
    return [*chosen, "experiment", *(key for key in top if key not in ("defaults", "sweep"))]


def find_config_file(group: str, name: str, config_dirs: Sequence[Path] = ()) -> Path:
    """Find the file of a config, the user's or a shipped one.

    Raises:
        ConfigError: If there is no such config.
    """
    names = list_config_names(group, config_dirs)
    require_known_name(group, name, names)
    roots = [*config_dirs, *list_shipped_config_dirs()]
    return next(path for root in roots if (path := root / group / f"{name}.yaml").is_file())


def _read_config(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


_PROVIDERS = "agentsys.models.providers"
_OF_EVERY_CARD: Mapping[str, Any] = {
    "prose_name": "AI assistant",
    "simulated": False,
    "api_key_env": None,
    "base_url": None,
    "temperature": 0.0,
    "max_tokens": None,
    "timeout_s": 300.0,
    "context_tokens": None,
    "price": None,
    "rate": {"requests": None, "tokens": None},
    "cache": True,
    "roles": {"main": None, "worker": None, "validator": None, "sanitizer": None},
}
_PREFIXES: Mapping[str, Mapping[str, Any]] = {
    "openai": {
        "_target_": f"{_PROVIDERS}.openai.OpenAIModel",
        "api_key_env": "OPENAI_API_KEY",
        "max_tokens_field": "max_completion_tokens",
    },
    "anthropic": {
        "_target_": f"{_PROVIDERS}.anthropic.AnthropicModel",
        "prose_name": "Claude",
        "api_key_env": "ANTHROPIC_API_KEY",
        "max_tokens": 8192,
    },
    "google": {
        "_target_": f"{_PROVIDERS}.google.GoogleModel",
        "prose_name": "AI model developed by Google",
        "api_key_env": "GEMINI_API_KEY",
    },
    "litellm": {"_target_": f"{_PROVIDERS}.litellm.LiteLLMModel"},
    "vllm": {
        "_target_": f"{_PROVIDERS}.openai.OpenAIModel",
        "prose_name": "Local model",
        "max_tokens": 4096,
    },
}
"""Prefix -> the fields of its cards that are not those of every card."""
_OWN_SERVER = "vllm"
"""The prefix of every server of one's own that speaks OpenAI's chat format."""
PREFIX_LINES = {
    "openai/ID, anthropic/ID, google/ID": "any model of these providers; needs the provider's key",
    "litellm/PROVIDER/ID": "any model that litellm reaches; needs pip install 'agentsys-bench[litellm]'",
    "vllm/ID@URL": "a server of yours that speaks OpenAI's chat format, as vLLM and Ollama do",
}
"""Form of a name -> what it reaches. The cost of a model is not known unless a shipped YAML has it."""


def is_prefixed(name: object) -> bool:
    """True if a model's name is meant as `PREFIX/ID`: no name of a YAML has a slash."""
    return isinstance(name, str) and "/" in name


def make_card_name(model_id: str) -> str:
    """Make the name for configs and tables: the end of the provider's id, in small letters.

    Letters beyond ASCII stay. A record's file name cannot hold them, so digits of the id's hash keep two such apart.
    """
    name = re.sub(r"[^\w.-]+", "-", model_id.rpartition("/")[2].lower()).strip("-.") or "model"
    return name if name.isascii() else f"{name}-{hashlib.sha256(model_id.encode()).hexdigest()[:6]}"


def make_server_card(
    model_id: str, address: str, name: str, cards: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Make the card of a model on a server of one's own, from the YAML of the same model where there is one."""
    card = _find_card(cards, _OWN_SERVER, model_id) or _make_card(_OWN_SERVER, model_id, name)
    return {**card, "name": name, "base_url": address}


def load_prefixed_card(text: str, cards: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Make the card that `PREFIX/ID` or `vllm/ID@URL` means.

    Args:
        text: What was typed.
        cards: All YAMLs of models; one of the same model is taken, with its price and its row in the tables.

    Raises:
        ConfigError: For an unknown prefix, without an id, or without the address of a server.
    """
    prefix, _, model_id = text.partition("/")
    if prefix not in _PREFIXES:
        problem = unknown_name("prefix of a model", prefix, _PREFIXES)
        raise ConfigError(f"model={text}: {problem} Through litellm: model=litellm/{text}")
    address = ""
    if prefix == _OWN_SERVER:
        model_id, _, address = model_id.partition("@")
    elif "@http" in model_id:
        # No provider's id holds an address, which would be sent nowhere and name the model.
        at = model_id.index("@http")
        raise ConfigError(
            f"model={prefix}/{model_id[:at]}: an address stands behind vllm/ID@ alone. A server of yours: "
            f"model=vllm/{model_id[:at]}@URL; a gateway of {prefix}: model={prefix}/{model_id[:at]} model.base_url=URL"
        )
    if not model_id:
        raise ConfigError(
            f"model={text}: the model's id is missing. Write model={prefix}/ID, as its provider calls it"
        )
    if address and not re.fullmatch(r"https?://[^\s/@]+(/[^\s@]*)?", address):
        form = f"Write model={prefix}/{model_id}@http://HOST:PORT/v1"
        raise ConfigError(
            f"model={prefix}/{model_id}: an address begins with http:// and holds no password. {form}"
        )
    every = list(cards)
    if card := _find_card(every, prefix, model_id):
        return {**card, "base_url": address} if address else dict(card)
    if prefix == _OWN_SERVER and not address:
        example = "http://127.0.0.1:8000/v1"
        raise ConfigError(f"model={text}: at which address? Write model={text.rstrip('@')}@{example}")
    name = make_card_name(model_id)
    taken = name in {card.get("name") for card in every}
    made = _make_card(prefix, model_id, f"{prefix}-{name}" if taken else name)
    return made | {"base_url": address} if address else made


def _make_card(prefix: str, model_id: str, name: str) -> dict[str, Any]:
    own = _PREFIXES[prefix]
    return {"_target_": own["_target_"], "name": name, "model_id": model_id, **_OF_EVERY_CARD, **own}


def _find_card(cards: Iterable[Mapping[str, Any]], prefix: str, model_id: str) -> Mapping[str, Any] | None:
    """Find the YAML of a model at this provider and with its key; of several the one with the shortest name."""
    own = _PREFIXES[prefix]
    fitting = [
        card
        for card in cards
        if model_id in (card.get("model_id"), card.get("name"))
        and card.get("_target_") == own["_target_"]
        and card.get("api_key_env") == own.get("api_key_env")
        and (card.get("base_url") is not None) == (prefix == _OWN_SERVER)
    ]
    # Qwen/Qwen3-32B is the id of `qwen3-32b-thinking`, too.
    return min(fitting, key=lambda card: len(str(card["name"])), default=None)
