"""The webhook alone in a process, with parameters that gate every pod. Prints its port, then serves until killed."""

import sys
import threading
from pathlib import Path

from topomend.gating.key_pairs import KeyPairs
from topomend.gating.review import Parameter
from topomend.gating.webhook import Webhook

if __name__ == "__main__":
    authority, key, certificate = (Path(sys.argv[1], name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
    pairs = KeyPairs(authority, b"", certificate, key)
    print(
        Webhook("127.0.0.1:0", pairs, lambda _: Parameter(exists=True), lambda _: False, lambda _: None).port,
        flush=True,
    )
    threading.Event().wait()
