"""`Tools`: a clerk's four tools, which note what ran."""

from __future__ import annotations

from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime


class Tools:
    """A runtime of these tools, those of `without` left out, that notes what ran."""

    def __init__(
        self, bill: Any = "Pay 5 to Bob.", note: Any = "A note.", without: tuple[str, ...] = ()
    ) -> None:
        self.ran: list[str] = []
        self.runtime = FunctionsRuntime()

        def read_bill(path: str = "bill.txt") -> str:
            """Reads a bill.

            :param path: Where it is.
            """
            return self._result("read_bill", bill)

        def read_note() -> str:
            """Reads a note."""
            return self._result("read_note", note)

        def pay(to: str, amount: int = 0) -> str:
            """Pays.

            :param to: Whom.
            :param amount: How much.
            """
            self.ran.append(f"pay {to} {amount}")
            return "paid"

        def mail(to: str) -> str:
            """Sends a mail.

            :param to: To whom.
            """
            self.ran.append(f"mail {to}")
            return "sent"

        for tool in (read_bill, read_note, pay, mail):
            if tool.__name__ not in without:
                self.runtime.register_function(tool)

    def _result(self, name: str, result: Any) -> str:
        self.ran.append(name)
        if isinstance(result, Exception):
            raise result
        return str(result)
