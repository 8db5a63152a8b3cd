"""All clients against a certificate of Amazon EKS' kind, with TLS as strict as Python 3.13 makes it by default."""

import asyncio
import json
import ssl
from pathlib import Path

import pytest
from tests.kube.certificates import Authority, Server, serving

from topomend.controller.own_objects import OwnObjects
from topomend.kube.agent_client import AgentClient
from topomend.kube.client import connect
from topomend.kube.connection.access import find_access
from topomend.kube.connection.tls import as_clusters_are
from topomend.kube.resources import NODES

STRICT = ssl.VERIFY_X509_STRICT


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """An API server, and a kubeconfig for it."""
    host = str(request.param)
    authority = Authority.make(tmp_path)
    api = request.getfixturevalue("serve")(authority.issue("api", f"IP:{host}"), host)
    address = f"[{host}]" if ":" in host else host
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": f"https://{address}:{api.port}",
                    "certificate-authority": str(authority.certificate),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    api.body = b'{"metadata": {"name": "n1"}}'
    assert isinstance(api, Server)
    return api


@pytest.fixture
def serve(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]  # a factory of this module's own
    def start(certificate: Path, host: str) -> Server:
        context = serving(certificate, host)
        started = context.__enter__()
        request.addfinalizer(lambda: context.__exit__(None, None, None))
        return started

    return start


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the standard library is from Python 3.13 on."""
    default = ssl.create_default_context

    def stricter(context: ssl.SSLContext) -> ssl.SSLContext:
        context.verify_flags |= STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", lambda *a, **k: stricter(default(*a, **k)))


@pytest.mark.usefixtures("strict")
def test_the_agents_client_takes_an_authority_without_key_identifiers(server: Server) -> None:
    client = AgentClient()
    assert client.node("n1") == {"metadata": {"name": "n1"}}
    client.close()
    assert server.asked == [("GET /api/v1/nodes/n1 HTTP/1.1", "Bearer t")]


@pytest.mark.usefixtures("strict")
def test_the_operators_client_takes_an_authority_without_key_identifiers(server: Server) -> None:
    client = connect()
    assert client.get(NODES, "n1") == {"metadata": {"name": "n1"}}
    client.close()
    assert server.asked == [("GET /api/v1/nodes/n1 HTTP/1.1", "Bearer t")]


@pytest.mark.usefixtures("strict")
def test_kopf_takes_an_authority_without_key_identifiers(server: Server) -> None:
    async def ask() -> int:
        session = await OwnObjects(find_access(), "default", (), lambda *_: None)._login()
        async with session.aiohttp_session as http, http.get(f"{session.server}/version") as answer:
            return answer.status

    assert asyncio.run(asyncio.wait_for(ask(), 30)) == 200
    assert server.asked == [("GET /version HTTP/1.1", "Bearer t")]


def test_only_the_strict_mode_is_taken_off() -> None:
    context = ssl.create_default_context()
    before = context.verify_flags & ~STRICT
    context.verify_flags |= STRICT
    assert as_clusters_are(context) is context
    assert context.verify_flags == before
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
