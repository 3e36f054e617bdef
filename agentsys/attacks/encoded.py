"""`EncodedAttack`: another attack's text in a code that filters do not read and some models do."""

from __future__ import annotations

from collections.abc import Mapping

from agentsys.abilities import PicksPairs, NamesExclusions
from agentsys.attacks.codes import TEXT_CODES
from agentsys.attacks.literal import unescape_for_suite, escape_for_suite
from agentsys.attacks.search import is_searched
from agentsys.contracts import Attack, AttackKind, InjectionTask, Suite, UserTask, Victim
from agentsys.errors import ConfigError, require_known_name
from agentsys.models.reading_test import ReadingTest


class EncodedAttack:
    """Writes what a model would have read of `base`, in a code, so that it arrives character by character.

    Args:
        base: The attack whose texts are encoded.
        code: One of `codes.CODES`.
        hint: Whether a line in plain words says how to read it.
        name: The attack's name.

    Raises:
        ConfigError: If the code is not known, or the base writes nothing or searches.
    """

    def __init__(self, base: Attack, code: str, *, hint: bool = True, name: str | None = None) -> None:
        if not isinstance(base, Attack):
            raise ConfigError(f"attack.base = {base!r}: give an attack's name, e.g. important_instructions.")
        if base.kind is AttackKind.NONE or is_searched(base):
            raise ConfigError(
                f"attack.base: '{base.name}' has no text of its own to encode; name one that has."
            )
        self.name = name or f"encoded-{code}"
        self.kind: AttackKind = base.kind
        self.left_out = base.left_out if isinstance(base, NamesExclusions) else "does not apply to"
        self.reading_test = ReadingTest(code if hint else f"{code}, without a hint", self._encode_text)
        self._base, self._code, self._hint = base, TEXT_CODES[require_known_name("attack.code", code, TEXT_CODES)], hint

    def applies_to(self, suite: Suite, user_task: UserTask, injection_task: InjectionTask) -> bool:
        """Whether the base takes the pair."""
        base = self._base
        return not isinstance(base, PicksPairs) or base.applies_to(suite, user_task, injection_task)

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """The base's texts in the code, each in its vector.

        Raises:
            NotInjectable: As the base does.
        """
        texts = self._base.injections(suite, user_task, injection_task, victim)
        return {
            vector: escape_for_suite(suite, self._encode_text(unescape_for_suite(suite, text))) for vector, text in texts.items()
        }

    def _encode_text(self, text: str) -> str:
        coded = self._code.encode(text)
        return f"{self._code.hint}\n{coded}" if self._hint else coded
