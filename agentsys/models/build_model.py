"""Builds a model from its YAML: the only place where a provider and its wrappers are put together.

`RecordingModel(RoleRouter(BugTaggingModel(RetryingModel(CachingModel(MeteredModel(RateLimitedModel(provider)))))))`:
what the defense sees is recorded once, roles may go to different models, a bug in an adapter is not taken
for the defense's, a hit of the cache is no attempt, every request that is sent is in the ledger, and none
is sent faster than its server takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from agentsys.base.object_import import registered
from agentsys.errors import ConfigError
from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ChatRequest,
    ModelCodeFailed,
    ModelError,
    ModelWrapper,
    RecordedInjectionModel,
    RecordedResult,
    Scene,
    SceneModel,
    WarmableModel,
)
from agentsys.models.model_card import ModelCard, build_provider, parse_card, reply_identity, to_plain_dict
from agentsys.models.wrappers.accounting import MeteredModel, RecordingModel
from agentsys.models.wrappers.rate_limit import RateLimitedModel, RateLimiter
from agentsys.models.wrappers.reply_cache import CacheMode, CachingModel, ReplyStore, RequestKeys, digest_json
from agentsys.models.wrappers.retry import NO_RETRY, RetryingModel, RetryPolicy

_PROBE_RETRY = RetryPolicy(attempts=2, base_s=0.5, total_s=5.0, empty_retries=0)


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
        except (Exception, SystemExit) as error:
            raise ModelCodeFailed(f"{type(error).__name__}: {error}") from error


class RoleRouter(ModelWrapper):
    """Sends each request to the model of the role that asks, e.g. a cheaper worker; named as the default."""

    def __init__(self, default: ChatModel, roles: Mapping[str, ChatModel]) -> None:
        super().__init__(default)
        self.roles = dict(roles)

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the role's model.

        Raises:
            ModelError: If that model raises it.
        """
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
            model = CachingModel(model, self.store, self._request_keys(scene), keeper=self.provider)
        return BugTaggingModel(RetryingModel(model, self.card.retry or RetryPolicy()))

    def _request_keys(self, scene: Scene) -> RequestKeys:
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
        """Whether any provider behind it is simulated."""
        return any(part.card.simulated for part in (self.main, *self.roles.values()))

    def model_id(self, role: str) -> str:
        """The provider's id of the model that a role asks for; empty where it has none."""
        return self.roles.get(role, self.main).model_id

    def for_scene(self, scene: Scene) -> ChatModel:
        """The model to use in one case. Cheap."""
        model = self.main.for_scene(scene)
        if self.roles:
            model = RoleRouter(model, {role: part.for_scene(scene) for role, part in self.roles.items()})
        return RecordingModel(model)

    def warm_up(self) -> None:
        """Have every model behind it make ready what its first answer would wait for."""
        for part in (self.main, *self.roles.values()):
            if isinstance(part.provider, WarmableModel):
                part.provider.warm_up()

    def probe_models(self, but: Collection[str] = ()) -> list[ChatModel]:
        """Every model behind it that has a server, but those of some roles, for a look before the run."""
        parts = (self.main, *(part for role, part in self.roles.items() if role not in but))
        return [server for part in parts if (server := part.probe_model) is not None]

    def role_probe_model(self, role: str) -> ChatModel | None:
        """The model of a role, if it has one of its own with a server."""
        part = self.roles.get(role)
        return None if part is None else part.probe_model

    @property
    def cards(self) -> list[ModelCard]:
        """The cards of every model behind it."""
        return [part.card for part in (self.main, *self.roles.values())]

    @property
    def replays_runs(self) -> bool:
        """Whether the model replays runs and so says itself what is injected."""
        return isinstance(self.main.provider, RecordedInjectionModel)

    def recorded_injections(self, scene: Scene) -> dict[str, str] | None:
        """Give what a recorded run had injected; None if the model replays none.

        Raises:
            ModelError: If there is no recorded run for the scene.
        """
        provider = self.main.provider
        return provider.recorded_injections(scene) if isinstance(provider, RecordedInjectionModel) else None

    def recorded_results(self, scene: Scene) -> Sequence[RecordedResult]:
        """Give what tools returned in a recorded run, likewise; nothing if the model replays none."""
        provider = self.main.provider
        return provider.recorded_results(scene) if isinstance(provider, RecordedInjectionModel) else ()


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
        node: The model's YAML, as a dict or an OmegaConf node.
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
    fields = to_plain_dict(node)
    card = parse_card(fields)
    read_only = read_only and open_store is not None
    if read_only and "api_key_env" in fields:  # nothing will be sent
        fields = {**fields, "api_key_env": None}
    provider = finish(build_provider(fields, card))
    asked = str(fields.get("model_id") or "")
    pacer = None
    if not isinstance(provider, SceneModel):
        shared = None if rates is None else rates / f"{_server_digest(fields)}.json"
        pacer = RateLimiter(shared, card.rate, patience_s=(card.retry or RetryPolicy()).total_s)
    store = None
    if open_store is not None and (card.cache or read_only):
        store = open_store()
    return _BuiltModel(card, provider, reply_identity(fields), store, asked, pacer=pacer)


def _server_digest(fields: Mapping[str, Any]) -> str:
    """Digest of what a rate holds for: a model of a server, asked with one key."""
    known = [fields.get(name) for name in ("base_url", "model_id", "api_key_env", "name")]
    return digest_json([registered(fields.get("_target_")).in_0_1, *known])[:16]
