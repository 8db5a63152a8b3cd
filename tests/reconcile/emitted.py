"""Events as they are emitted, in the place of the recorder that posts them."""

from typing import Any

from topomend.reconcile.announcer import Announcer
from topomend.runtime.event_recorder import Regarding


class Emitted:
    """Every Event as kind and name of its object, type, reason, action and note; ``facts`` has what it is told by."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []
        self.facts: list[tuple[str, Regarding | None]] = []
        self.budget = True
        self.announcer = Announcer(self)  # type: ignore[arg-type]  # all that it calls is here

    def emit(
        self, regarding: Regarding, *words: str, fact: str = "", related: Regarding | None = None, **_: Any
    ) -> None:
        self.events.append((f"{regarding.kind}/{regarding.name}", *words))
        self.facts.append((fact, related))

    def has_budget(self, _: Regarding) -> bool:
        return self.budget

    def is_new(self, *_: object) -> bool:
        return self.budget

    def reasons(self) -> list[str]:
        """The reasons of all Events, in their order."""
        return [reason for _, _, reason, *_ in self.events]

    def notes(self, reason: str) -> list[str]:
        """The notes of the Events of this reason, in their order."""
        return [words[-1] for _, _, *words in self.events if words[0] == reason]
