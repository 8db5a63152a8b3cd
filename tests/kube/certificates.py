"""Certificates as clusters have them, made by openssl, and an HTTPS server that shows one."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """A certificate authority. It has no extension but the one that says so, as Amazon EKS makes its own."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "Authority":
        (folder / "ca.cnf").write_text(
            "[req]\ndistinguished_name=name\nx509_extensions=ca\nprompt=no\n[name]\nCN=kubernetes\n"
            "[ca]\nbasicConstraints=critical,CA:TRUE\n"
        )
        _openssl(folder, "req", "-x509", *_NEW_KEY, "-config", "ca.cnf", "-keyout", "ca.key", "-out", "ca.crt")
        return cls(folder)

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    def issue(self, name: str, *alternatives: str) -> Path:
        """A file with a key and its certificate for these names (``DNS:n1``, ``IP:::1``)."""
        (self.folder / f"{name}.cnf").write_text(f"subjectAltName={','.join(alternatives)}\n")
        request = ("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        _openssl(self.folder, "req", *_NEW_KEY, *request)
        signed_by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.cnf")
        _openssl(self.folder, "x509", "-req", "-in", f"{name}.csr", *signed_by, "-out", f"{name}.crt")
        both = self.folder / f"{name}.pem"
        both.write_bytes((self.folder / f"{name}.key").read_bytes() + (self.folder / f"{name}.crt").read_bytes())
        return both


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(folder: Path, *arguments: str) -> None:
    command = ["openssl", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=240)


@dataclass
class Server:
    """What was asked of it, as request line and Authorization; ``status`` and ``body`` are its answer."""

    port: int = 0
    status: int = 200
    body: bytes = b"{}"
    asked: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def serving(certificate: Path, host: str = "127.0.0.1") -> Iterator[Server]:
    """An HTTPS server at ``host`` that shows this certificate."""
    shown = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.asked.append((self.requestline, self.headers.get("Authorization", "")))
            self.send_response(shown.status)
            self.send_header("Content-Length", str(len(shown.body)))
            self.end_headers()
            self.wfile.write(shown.body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
            del format, arguments

    class Listener(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that end a handshake are what is tested."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = Listener((host, 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    shown.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield shown
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
