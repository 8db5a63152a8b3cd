"""TLS of the kubelet's server.

Source: cmd/kubelet/app/server.go:InitializeTLS, component-base cli/flag/ciphersuites_flag.go and curves_flag.go. Names
of ciphers and curves are those of Go 1.22 to 1.26, with which these releases are built.
"""

from collections.abc import Iterator

from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.go_text import quote

_CIPHERS = frozenset(
    f"TLS_{name}"
    for name in (
        "AES_128_GCM_SHA256",
        "AES_256_GCM_SHA384",
        "CHACHA20_POLY1305_SHA256",
        "ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
        "ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE_ECDSA_WITH_RC4_128_SHA",
        "ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "ECDHE_RSA_WITH_AES_128_CBC_SHA256",
        "ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE_RSA_WITH_AES_256_CBC_SHA",
        "ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE_RSA_WITH_RC4_128_SHA",
        "RSA_WITH_3DES_EDE_CBC_SHA",
        "RSA_WITH_AES_128_CBC_SHA",
        "RSA_WITH_AES_128_CBC_SHA256",
        "RSA_WITH_AES_128_GCM_SHA256",
        "RSA_WITH_AES_256_CBC_SHA",
        "RSA_WITH_AES_256_GCM_SHA384",
        "RSA_WITH_RC4_128_SHA",
    )
)
_HTTP2_CIPHERS = ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
_VERSIONS = ("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
_CURVES = frozenset({23, 24, 25, 29, 4587, 4588, 4589})
_MAX_CURVE = (1 << 16) - 1


def tls(config: Configuration) -> Iterator[str]:
    """The cipher suites, the least version and, since 1.36, the curves. The kubelet names the first fault."""
    for cipher in config.texts("tlsCipherSuites"):
        if cipher not in _CIPHERS:
            yield f"Cipher suite {cipher} not supported or doesn't exist"
            return
    version = config.text("tlsMinVersion")
    if version not in _VERSIONS:
        yield f"unknown tls version {quote(version)}"
    elif config.minor >= 36:
        yield from _curves(config)


def _curves(config: Configuration) -> Iterator[str]:
    seen: set[int] = set()
    for curve in (item for item in config.items("tlsCurvePreferences") if isinstance(item, int)):
        if not 0 < curve <= _MAX_CURVE:
            yield f"curve preference {curve} is out of range (must be 1-{_MAX_CURVE})"
        elif curve in seen:
            yield f"duplicate curve preference {curve}"
        elif curve not in _CURVES:
            yield f"curve preference {curve} is not supported by the current Go version"
        else:
            seen.add(curve)
            continue
        return


def http2(config: Configuration) -> Iterator[str]:
    """Go serves HTTP/2 with one of two ciphers at least, or with TLS 1.3; the kubelet then ends as it begins to listen.

    Source: net/http (golang.org/x/net/http2:ConfigureServer), pkg/kubelet/server/server.go:ListenAndServeKubeletServer.
    """
    ciphers = config.texts("tlsCipherSuites")
    if config.content.get("enableServer") is False or config.text("tlsMinVersion") == "VersionTLS13" or not ciphers:
        return
    if not any(cipher in ciphers for cipher in _HTTP2_CIPHERS):
        rsa, ecdsa = _HTTP2_CIPHERS
        yield (
            "http2: TLSConfig.CipherSuites is missing an HTTP/2-required AES_128_GCM_SHA256 cipher "
            f"(need at least one of {rsa} or {ecdsa})"
        )
