"""The admission webhook's server: a path for each definition, and a certificate that is replaced while it serves."""

import json
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from topomend.gating.definitions import NAMES
from topomend.gating.key_pairs import KeyPairs
from topomend.gating.review import Parameter, answered
from topomend.kube.connection.tls import show
from topomend.runtime.http.server import PLAIN, Page
from topomend.runtime.http.webhook_server import Answers

_log = logging.getLogger(__name__)


class Webhook:
    """Serves the API server's reviews at ``address`` (HOST:PORT), with ``key_pairs``, until it is closed.

    ``parameter`` returns the newest parameter of a definition; ``opted_out`` says whether a namespace opted out;
    ``took`` gets the seconds of each answer. Raises OSError where nothing can listen there, and ssl.SSLError for key
    pairs that are none.
    """

    def __init__(
        self,
        address: str,
        key_pairs: KeyPairs,
        parameter: Callable[[str], Parameter],
        opted_out: Callable[[str], bool],
        took: Callable[[float], None],
    ) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._parameter, self._opted_out = parameter, opted_out
        self.use(key_pairs)
        answers = {f"/{definition}": partial(self._answer, definition) for definition in NAMES}
        self._server = Answers(address, answers, self._tls, took)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def use(self, key_pairs: KeyPairs) -> None:
        """Show new connections this certificate. Raises ssl.SSLError."""
        show(self._tls, key_pairs.certificate, key_pairs.key)

    def close(self, linger: float = 0.0) -> None:
        """Answer for ``linger`` seconds more, and then no more."""
        self._server.close(linger)

    def _answer(self, definition: str, body: bytes) -> Page:
        try:
            review = json.loads(body)
            answer = answered(review, definition, self._parameter(definition), datetime.now(UTC), self._opted_out)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.debug("a request to the webhook is no AdmissionReview: %r", error)
            return Page(400, PLAIN, b"no AdmissionReview of admission.k8s.io/v1\n")
        return Page(200, "application/json", json.dumps(answer).encode())
