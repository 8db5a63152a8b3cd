"""The programs as a container runs them: a user without a name, no environment, nothing that can be written.

``make e2e`` runs the image itself. These tests take seconds and no container runtime, so that every run of the tests
meets whatever needs a home, a user's name or a writable root.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy.manifests import ROOT
from tests.deploy.api import API
from tests.deploy.programs.test_programs import environment
from tests.waiting import eventually

from topomend.kube.connection.access import SERVICE_ACCOUNT
from topomend.sandbox import Sandbox
from topomend.sandbox.processes.host import how_to_enter_namespaces

pytestmark = pytest.mark.cluster

CONTAINER_USER = 65532
"""The image's user, which has no entry in /etc/passwd."""


def container(api: API, program: str, kubeconfig: str = "") -> list[str]:
    """A command that runs ``topomend program`` with the image's own environment.

    The account of ``api`` is mounted as a kubelet mounts it, unless the text of a ``kubeconfig`` is given.
    """
    server, _, port = api.server.removeprefix("https://").rpartition(":")
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "operator")}
    if kubeconfig:
        variables["KUBECONFIG"] = "/run/kubeconfig"
    else:
        variables |= {"KUBERNETES_SERVICE_HOST": server, "KUBERNETES_SERVICE_PORT": port}
    assigned = shlex.join(f"{name}={value}" for name, value in variables.items())
    setup = f"""set -e
mount -t tmpfs tmpfs /run
mkdir -p {SERVICE_ACCOUNT}
printf %s {shlex.quote(api.authority)} > {SERVICE_ACCOUNT}/ca.crt
printf %s {shlex.quote(api.token)} > {SERVICE_ACCOUNT}/token
printf %s {shlex.quote(kubeconfig)} > /run/kubeconfig
for folder in / /run /tmp /var/tmp; do
  ! mountpoint -q $folder || mount -o remount,bind,ro $folder
done
cd /
for folder in / /run /tmp /var/tmp; do
  ! touch $folder/probe 2>/dev/null || {{ echo "$folder can be written"; exit 1; }}
done
exec unshare --user --map-user={CONTAINER_USER} --map-group={CONTAINER_USER} \
  env -i {assigned} {shlex.quote(sys.executable)} -m topomend.cli {program}"""
    return ["unshare", *how_to_enter_namespaces(), "sh", "-c", setup]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the test."""
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        process.terminate()
        process.wait(60)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("has_kubeconfig", [False, True])
def test_the_operator_watches_as_a_user_without_a_name_on_a_read_only_root(
    operator: API, started: list[subprocess.Popen[bytes]], tmp_path: Path, has_kubeconfig: bool
) -> None:
    log = tmp_path / "log"
    kubeconfig = Path(environment(operator, tmp_path)["KUBECONFIG"]).read_text() if has_kubeconfig else ""
    with log.open("wb") as written:
        flags = "operator --leader-elect --health-address=[::1]:0 --metrics-address=:0"
        command = container(operator, flags, kubeconfig)
        started.append(subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT))

    def watches() -> bool:
        assert started[0].poll() is None, log.read_text()
        return "every kind is watched" in log.read_text()

    eventually("the operator watches", watches)
    assert "ended (" not in log.read_text(), log.read_text()
    assert "OSError" not in log.read_text(), log.read_text()


def test_the_agent_publishes_as_a_user_without_a_name_on_a_read_only_root(
    admin: API, cluster: Sandbox, tmp_path: Path
) -> None:
    node = cluster.nodes[0].name
    path = f"/apis/topomend.io/v1alpha1/nodetopologies/{node}"
    admin.delete(path)
    command = container(admin, f"agent --node-name={node} --once")
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stderr
    assert admin.get(path).allowed
    admin.delete(path)
