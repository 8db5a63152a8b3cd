"""What Go is told where it builds."""

import os
from types import SimpleNamespace

import psutil
import pytest

from topomend.sandbox.releases.toolchain import ENVIRONMENT, FASTER, ROOMY, environment

ENOUGH = ROOMY * ((os.cpu_count() or 1) + 2)


@pytest.mark.parametrize(("available", "more"), [(ENOUGH, FASTER), (ENOUGH - 1, {})])
def test_a_build_takes_more_memory_only_where_there_is_enough(
    available: int, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FASTER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
    assert environment() == ENVIRONMENT | more


def test_a_build_collects_garbage_as_its_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=ENOUGH))
    monkeypatch.setenv("GOGC", "50")
    monkeypatch.delenv("GOMEMLIMIT", raising=False)
    assert environment() == ENVIRONMENT | FASTER | {"GOGC": "50"}
