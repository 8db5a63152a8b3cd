"""Client certificates of one cluster, signed by its own authority with openssl(1), valid for two days."""

import base64
import json
import subprocess
from pathlib import Path

_CONFIGURATION = """[req]
distinguished_name = subject
[subject]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[client]
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs client certificates; its files are in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._configuration = folder / "openssl.conf"
        self._configuration.write_text(_CONFIGURATION)
        self.certificate = folder / "client-authority.crt"
        self._key = folder / "client-authority.key"
        self._request("/CN=topomend-e2e", "authority", self._key, self.certificate)

    def sign(self, user: str, group: str) -> tuple[Path, Path]:
        """The certificate and the key of ``user``, who is in ``group``."""
        name = user.replace(":", "-")
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        by = ("-CA", str(self.certificate), "-CAkey", str(self._key))
        self._request(f"/O={group}/CN={user}", "client", key, certificate, *by)
        return certificate, key

    def _request(self, subject: str, extensions: str, key: Path, certificate: Path, *by: str) -> None:
        argv = ["openssl", "req", "-x509", "-days", "2", "-config", str(self._configuration), *_KEY, *by]
        argv += ["-subj", subject, "-extensions", extensions, "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def kubeconfig(server: str, server_authority: Path, certificate: Path, key: Path) -> str:
    """A kubeconfig with embedded certificates, in JSON, which is also YAML."""

    def encoded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": encoded(server_authority)}
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    }
    return json.dumps(document)
