"""Ports for programs that listen later: no two processes get the same one meanwhile."""

import json
import os
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

import topomend
from topomend.sandbox.control_plane import HOST
from topomend.sandbox.failures import SandboxUnavailable
from topomend.sandbox.processes import host

RANGE = range(20_000, 20_200)
COUNT = 60
"""By chance two such choices from RANGE are never disjoint."""

SCRIPT = f"""
import json
from topomend.sandbox.processes import host
host.PORTS = range({RANGE.start}, {RANGE.stop})
print(json.dumps(host.free_ports({COUNT})))
"""


def of_another_process() -> list[int]:
    environment = {**os.environ, "PYTHONPATH": str(Path(topomend.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_what_one_process_was_given_no_other_gets_while_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PORTS", RANGE)
    ours = host.free_ports(COUNT)
    theirs = of_another_process()
    assert len(set(ours)) == len(set(theirs)) == COUNT
    assert not set(ours) & set(theirs)


def test_ports_of_a_process_that_has_ended_are_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PORTS", of_another_process())
    assert len(host.free_ports(COUNT // 2)) == COUNT // 2  # other processes may have taken some


def test_a_port_on_which_somebody_listens_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setattr(host, "PORTS", range(port, port + 1))
        with pytest.raises(SandboxUnavailable, match=f"no 1 free ports on {HOST} in {port}-{port}"):
            host.free_ports(1)


def test_of_many_ports_the_first_ones_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MAX_CLAIMS", 2)
    monkeypatch.setattr(host, "_claims", claims := deque[int]())
    monkeypatch.setattr(host, "PORTS", range(20_200, 20_400))
    host.free_ports(5)
    assert len(claims) == 2
    for claim in claims:
        os.close(claim)
