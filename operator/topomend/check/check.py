"""A check: its code, severity, the facts that it needs, what its page says, and the rule itself.

A module of the room that has a function under ``@check`` has registered it: ``catalogue`` collects them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import cleandoc

from topomend.check.facts import Facts, Part
from topomend.check.finding import Finding, Found, Severity

Rule = Callable[[Facts], Iterator[Found]]


@dataclass(frozen=True)
class Check:
    """One check. ``meaning`` is what a finding means, ``why`` why that matters, ``cure`` what helps, for its page."""

    code: str
    severity: Severity
    title: str
    needs: tuple[Part, ...]
    meaning: str
    why: str
    cure: str
    rule: Rule

    def findings(self, facts: Facts) -> Iterator[Finding]:
        """What is wrong by the rule."""
        for found in self.rule(facts):
            yield Finding(self.code, self.severity, found.subject, found.message, found.cure)

    def unread(self, facts: Facts) -> tuple[str, ...]:
        """Why the facts that it needs are not all known; empty where they are."""
        return tuple(dict.fromkeys(facts.unread[part] for part in self.needs if part in facts.unread))


def check(code: str, severity: Severity, title: str, *needs: Part, why: str, cure: str) -> Callable[[Rule], Check]:
    """Make a rule a check. The rule's docstring is what a finding means."""

    def made(rule: Rule) -> Check:
        return Check(code, severity, title, needs, cleandoc(rule.__doc__ or ""), why, cure, rule)

    return made
