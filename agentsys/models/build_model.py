"""Builds a model from its YAML: `ModelCard` is what that says of it; provider and wrappers are put together here only.

`RecordingModel(RoleRouter(BugTaggingModel(RetryingModel(CachingModel(MeteredModel(RateLimitedModel(provider)))))))`:
what the defense sees is recorded once, roles may go to different models, a bug in an adapter is not taken
for the defense's, a hit of the cache is no attempt, every request that is sent is in the ledger, and none
is sent faster than its server takes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentsys.base.object_import import find_registered_class, load_target
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ChatRequest,
    ModelCodeFailed,
    ModelError,
    ModelWrapper,
    RecordedInjectionModel,
    RecordedResult,
    RecordedScoreModel,
    Scene,
    SceneModel,
    WarmableModel,
    list_code_errors,
)
from agentsys.models.pricing import Price
from agentsys.models.thought_text import ThoughtBlock, ThoughtSplittingModel
from agentsys.models.wrappers.accounting import (
    NO_RETRY,
    MeteredModel,
    RecordingModel,
    RetryingModel,
    RetryPolicy,
)
from agentsys.models.wrappers.rate_limit import RateLimitedModel, RateLimiter, RatePolicy
from agentsys.models.wrappers.reply_cache import CacheMode, CachingModel, ReplyStore, RequestKeys, digest_json


class ModelCard(BaseModel):
    """The fields of a model's YAML that are about the model and not about its provider."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    name: str = Field(min_length=1)
    """The name in configs, records and tables."""
    prose_name: str = Field(min_length=1)
    """What attacks call it, e.g. `GPT-4`."""
    simulated: bool = False
    """Whether it is no LLM; then every record, table and figure says so."""
    chat_family: str | None = None
    """Whose chat template it reads, as `attacks.red_team.chat_injection` names them; None: not known.
    What an attacker may guess."""
    context_tokens: int | None = Field(default=None, gt=0)
    """Size of its context; None where it is not known."""
    price: Price | None = None
    """None: cost is not known (or, for a model of your own, nothing)."""
    retry: RetryPolicy | None = None
    """None: the default policy (scripted models: none at all)."""
    rate: RatePolicy | None = None
    """Most requests and tokens per minute; None: as many as the server takes."""
    cache: bool = False
    """Whether replies are kept on disk, so that a repeated call costs nothing."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Role -> name of another model's YAML that answers for it (in a YAML, null: this model does)."""

    @field_validator("roles", mode="before")
    @classmethod
    def _drop_null_roles(cls, roles: object) -> object:
        # YAMLs list the usual roles as null, so that `model.roles.worker=NAME` overrides a known key.
        if isinstance(roles, Mapping):
            return {role: name for role, name in roles.items() if name is not None}
        return {} if roles is None else roles


def parse_card(fields: Mapping[str, Any]) -> ModelCard:
    """The card of a model's YAML; builds nothing and needs no key.

    Raises:
        ConfigError: If one of the card's fields is missing or wrong, or any field that has to be given is `???`.
    """
    name = fields.get("name", "?")
    if missing := [field for field, value in fields.items() if value == "???"]:
        raise ConfigError(f"Model '{name}' needs {missing[0]}; give it: model.{missing[0]}=VALUE.")
    try:
        return ModelCard.model_validate({k: v for k, v in fields.items() if k in ModelCard.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"Model '{name}': {where}: {first['msg']}.") from None


_NOT_IDENTITY = {"name", "price", "timeout_s", "max_reply_bytes", "api_key_env", "prompt_cache"}
"""Arguments that no reply depends on."""


def pick_reply_identity(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Select what the replies of this model depend on besides the request: the part of its YAML that matters.

    A class that moved counts under its first name, or replies that were paid for before would be asked again.
    """
    ignored = _NOT_IDENTITY | (set(ModelCard.model_fields) - {"name"})
    known = {field: value for field, value in fields.items() if field not in ignored}
    return {k: find_registered_class(v).first if k == "_target_" else v for k, v in known.items()}


def find_model_class(model: str, path: object) -> type[Any]:
    """The class under a dotted path, as Hydra finds its `_target_`.

    Raises:
        ConfigError: If there is no such class, or it has no `complete`.
    """
    target = load_target(f"model '{model}'", {"_target_": path})
    if not isinstance(target, type) or not hasattr(target, "complete"):
        raise ConfigError(f"Model '{model}': {path} is no chat model: no class with a method `complete`.")
    return target


def build_provider(fields: Mapping[str, Any], card: ModelCard) -> ChatModel:
    """Build the provider that a model's YAML names; what it takes of the model's card is handed to it.

    Raises:
        ConfigError: If the class cannot be found, an argument is unknown or missing, or the provider
            itself refuses (a missing key, for one).
    """
    provider_class = find_model_class(card.name, fields.get("_target_"))
    parameters = inspect.signature(provider_class).parameters
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    shared = {field: getattr(card, field) for field in ModelCard.model_fields if field in parameters}
    extra = {k: v for k, v in fields.items() if k not in ModelCard.model_fields and k != "_target_"}
    for key in extra:
        if key not in parameters and not takes_any:
            known = {*parameters, *ModelCard.model_fields}
            raise ConfigError(f"Model '{card.name}': {unknown_name('key', key, known)}")
    arguments = shared | extra
    for name, parameter in parameters.items():
        needed = parameter.default is parameter.empty and parameter.kind not in variadic
        if needed and name not in arguments:
            raise ConfigError(
                f"Model '{card.name}' needs {name}; add it to its YAML or as model.{name}=VALUE."
            )
    built: ChatModel = provider_class(**arguments)
    return built


_PROBE_RETRY = RetryPolicy(attempts=3, base_s=0.5, total_s=5.0, empty_retries=0)


class BugTaggingModel(ModelWrapper):
    """A model whose own bugs are told from those of the defense that asks it."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model.

        Raises:
            ModelError, ConfigError: As the wrapped model does.
            ModelCodeFailed: If it raised anything else.
        """
        try:
            return self.model.complete(request)
        except (ModelError, ConfigError):
            raise
        except list_code_errors() as error:
            raise ModelCodeFailed(f"{type(error).__name__}: {error}") from error


@dataclass
class RoleRouter(ModelWrapper):
    """Sends each request to the model of the role that asks, e.g. a cheaper worker; named as the default."""

    roles: Mapping[str, ChatModel]

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the role's model."""
        return self.roles.get(request.role, self.model).complete(request)


@dataclass(frozen=True)
class _BuiltModel:
    """One provider with what its wrappers need; shared by all cases."""

    card: ModelCard
    provider: ChatModel
    identity: Mapping[str, Any]
    store: ReplyStore | None
    model_id: str = ""
    """The provider's id of it; empty where it has none (scripted models)."""
    pacer: RateLimiter | None = None
    """None: it asks nobody."""
    thoughts: ThoughtBlock | None = None
    """How its texts begin with thoughts, which are then split off; None: they do not."""

    @property
    def probe_model(self) -> ChatModel | None:
        """The provider, asked once or twice and never from the cache; None where it asks nobody."""
        if self.pacer is None or (self.store is not None and self.store.read_only):
            return None
        return BugTaggingModel(
            RetryingModel(
                MeteredModel(RateLimitedModel(self.provider, self.pacer), self.card.price), _PROBE_RETRY
            )
        )

    def for_scene(self, scene: Scene) -> ChatModel:
        if self.pacer is None:
            assert isinstance(self.provider, SceneModel)
            scripted = MeteredModel(self.provider.for_scene(scene), self.card.price, sent=False)
            return BugTaggingModel(RetryingModel(scripted, self.card.retry or NO_RETRY))
        longest = getattr(self.provider, "max_tokens", None)
        paced = RateLimitedModel(self.provider, self.pacer)
        model: ChatModel = MeteredModel(paced, self.card.price, max_tokens=longest)
        if self.store is not None:
            model = CachingModel(model, self.store, self._make_request_keys(scene), keeper=self.provider)
        if self.thoughts is not None:
            model = ThoughtSplittingModel(model, self.thoughts)
        return BugTaggingModel(RetryingModel(model, self.card.retry or RetryPolicy()))

    def split_thoughts(self, blocks: Mapping[str, ThoughtBlock]) -> _BuiltModel:
        """The same with its thoughts split off, unless its YAML decides that (`strip_think`)."""
        decided = getattr(self.provider, "strip_think", None) is not None
        return self if decided else replace(self, thoughts=blocks.get(self.card.name, self.thoughts))

    def _make_request_keys(self, scene: Scene) -> RequestKeys:
        return RequestKeys(
            {**self.identity, "again": scene.rerun} if scene.rerun else self.identity,
            scene.epoch,
            case=[scene.suite, scene.user_task_id, scene.injection_task_id, scene.attack],
            temperature=getattr(self.provider, "temperature", None),
            role_matters=bool(self.identity.get("send_role")),
        )


@dataclass(frozen=True)
class ModelStack:
    """A model as a run uses it: built once, wrapped afresh for each case."""

    main: _BuiltModel
    roles: Mapping[str, _BuiltModel]

    @property
    def card(self) -> ModelCard:
        """The main model's card."""
        return self.main.card

    @property
    def is_simulated(self) -> bool:
        """True if any provider behind it is simulated."""
        return any(part.card.simulated for part in (self.main, *self.roles.values()))

    def model_id(self, role: str) -> str:
        """The provider's id of the model that a role asks for; empty where it has none."""
        return self.roles.get(role, self.main).model_id

    def for_scene(self, scene: Scene) -> ChatModel:
        """The model to use in one case. Cheap."""
        model = self.main.for_scene(scene)
        if self.roles:
            model = RoleRouter(model, {role: part.for_scene(scene) for role, part in self.roles.items()})
        # A script has an order, and so have kept replies to equal questions; a server answers in any.
        side_by_side = all(part.probe_model is not None for part in (self.main, *self.roles.values()))
        return RecordingModel(model, side_by_side=side_by_side)

    def split_thoughts(self, blocks: Mapping[str, ThoughtBlock]) -> ModelStack:
        """The same where the thoughts of some models, by name, are split off their texts."""
        roles = {role: part.split_thoughts(blocks) for role, part in self.roles.items()}
        return ModelStack(self.main.split_thoughts(blocks), roles)

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts found out about its models, for every record."""
        split_models = (
            part.card.name for part in (self.main, *self.roles.values()) if part.thoughts is not None
        )
        return tuple(
            dict.fromkeys(
                f"strip_think: on for {name}, as its first answer began with thoughts"
                for name in split_models
            )
        )

    def warm_up(self) -> None:
        """Have every model behind it make ready what its first answer would wait for."""
        for part in (self.main, *self.roles.values()):
            if isinstance(part.provider, WarmableModel):
                part.provider.warm_up()

    def list_probe_models(self, but: Collection[str] = ()) -> list[ChatModel]:
        """Every model behind it that has a server, but those of some roles, for a look before the run."""
        parts = (self.main, *(part for role, part in self.roles.items() if role not in but))
        return [server for part in parts if (server := part.probe_model) is not None]

    def find_role_probe_model(self, role: str) -> ChatModel | None:
        """The model of a role, if it has one of its own with a server."""
        part = self.roles.get(role)
        return None if part is None else part.probe_model

    @property
    def cards(self) -> list[ModelCard]:
        """The cards of every model behind it."""
        return [part.card for part in (self.main, *self.roles.values())]

    @property
    def replays_runs(self) -> bool:
        """True if the model replays runs and so says itself what is injected."""
        return isinstance(self.main.provider, RecordedInjectionModel)

    def read_recorded_injections(self, scene: Scene) -> dict[str, str] | None:
        """Give what a recorded run had injected; None if the model replays none.

        Raises:
            ModelError: If there is no recorded run for the scene.
        """
        provider = self.main.provider
        return (
            provider.read_recorded_injections(scene) if isinstance(provider, RecordedInjectionModel) else None
        )

    def read_recorded_results(self, scene: Scene) -> Sequence[RecordedResult]:
        """Give what tools returned in a recorded run, likewise; nothing if the model replays none."""
        provider = self.main.provider
        return provider.read_recorded_results(scene) if isinstance(provider, RecordedInjectionModel) else ()

    def judges_thoughts(self, scene: Scene) -> bool:
        """True if a case is scored with the model's thoughts, likewise: where the replayed one was."""
        provider = self.main.provider
        return isinstance(provider, RecordedScoreModel) and provider.judges_thoughts(scene)


def build_stack(
    node: Mapping[str, Any],
    *,
    cache_dir: Path | None,
    cache_mode: CacheMode = CacheMode.READ_WRITE,
    load_model: Callable[[str], Mapping[str, Any]],
    finish: Callable[[ChatModel], ChatModel] = lambda model: model,
    rates: Path | None = None,
) -> ModelStack:
    """Build a model from its YAML.

    Args:
        node: The model's YAML.
        cache_dir: The folder that replies are kept in; None switches every cache off.
        cache_mode: What these replies are used for.
        load_model: Gives the YAML of another model by name, for `roles`.
        finish: Applied to each provider once it is built (hands a playbook to the simulated model).
        rates: The folder in which processes share how fast each model may be asked; None: they do not.

    Raises:
        ConfigError: If anything in a YAML is wrong or a key is missing.
    """
    open_store, read_only = None, cache_mode is CacheMode.READ_ONLY
    if cache_dir is not None and cache_mode is not CacheMode.OFF:
        open_store = cache(partial(ReplyStore, cache_dir, read_only=read_only))  # one for all models
    build = partial(_build_model, open_store=open_store, read_only=read_only, finish=finish, rates=rates)
    main = build(node)
    others = {name: build(load_model(name)) for name in sorted(set(main.card.roles.values()))}
    return ModelStack(main, {role: others[name] for role, name in main.card.roles.items()})


def _build_model(
    node: Mapping[str, Any],
    *,
    open_store: Callable[[], ReplyStore] | None,
    read_only: bool,
    finish: Callable[[ChatModel], ChatModel],
    rates: Path | None,
) -> _BuiltModel:
    """Build one model from its YAML: the provider, its cache and its rate limiter."""
    fields, card = dict(node), parse_card(node)
    read_only = read_only and open_store is not None
    if read_only and "api_key_env" in fields:  # nothing will be sent
        fields = {**fields, "api_key_env": None}
    provider = finish(build_provider(fields, card))
    asked = str(fields.get("model_id") or "")
    pacer = None
    if not isinstance(provider, SceneModel):
        # A rate holds for a model of a server, asked with one key.
        known = [fields.get(key) for key in ("base_url", "model_id", "api_key_env", "name")]
        server = digest_json([find_registered_class(fields.get("_target_")).in_0_1, *known])[:16]
        shared = None if rates is None else rates / f"{server}.json"
        pacer = RateLimiter(shared, card.rate, patience_s=(card.retry or RetryPolicy()).total_s)
    store = None
    if open_store is not None and (card.cache or read_only):
        store = open_store()
    return _BuiltModel(card, provider, pick_reply_identity(fields), store, asked, pacer=pacer)
