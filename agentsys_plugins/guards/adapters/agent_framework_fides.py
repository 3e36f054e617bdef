"""FIDES as `agent_framework.security` ships it, asked about one call at a time.

Runs in the guard's own Python, which holds `agent_framework` and nothing of ours. Both middlewares are the shipped
ones: one labels results, the other rules on calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from typing import Any

from agent_framework import FunctionInvocationContext, FunctionTool, MiddlewareTermination
from agent_framework.security import LabelTrackingFunctionMiddleware, PolicyEnforcementFunctionMiddleware


class FidesGate:
    """One conversation, in which the agent reads every result: none is hidden in a variable.

    Args:
        trusted: Tools whose results nobody else can have written; names may hold `*`.
        accepts: Tools that may be called whatever was read before.
    """

    def __init__(self, trusted: Sequence[str], accepts: Sequence[str]) -> None:
        self.trusted, self.accepts = trusted, accepts
        self.labels = LabelTrackingFunctionMiddleware(auto_hide_untrusted=False)
        self.policy = PolicyEnforcementFunctionMiddleware()

    def check(self, tool: str, args: Mapping[str, Any]) -> bool:
        """Say whether a call is refused; it does not run here, so it has no result to label."""
        context, ran = self._describe_call(tool, args), list[str]()

        async def run() -> None:
            ran.append(tool)

        async def rule() -> None:
            await self.policy.process(context, run)
            raise MiddlewareTermination("asked, not run")

        self._drive(context, rule)
        return not ran

    def observe(self, tool: str, text: str) -> None:
        """Label what a call returned."""
        context = self._describe_call(tool, {})

        async def run() -> None:
            context.result = text

        self._drive(context, run)

    def _describe_call(self, tool: str, args: Mapping[str, Any]) -> Any:
        trusted = any(fnmatch(tool, name) for name in self.trusted)
        labels = {
            "source_integrity": "trusted" if trusted else "untrusted",
            "accepts_untrusted": any(fnmatch(tool, name) for name in self.accepts),
        }
        function = FunctionTool(name=tool, description=tool, func=lambda: None, additional_properties=labels)
        return FunctionInvocationContext(function=function, arguments=dict(args))

    def _drive(self, context: Any, run: Callable[[], Awaitable[None]]) -> None:
        with suppress(MiddlewareTermination):
            asyncio.run(self.labels.process(context, run))
