"""The fingerprint of a node's pods, by which a scheduler tells whether a NodeResourceTopology knows of all of them.

Format v001 of github.com/k8stopologyawareschedwg/podfingerprint: a hash of namespaces and names, whatever their order.
"""

from collections.abc import Iterable

from xxhash import xxh64_digest, xxh64_intdigest

_PREFIX, _VERSION = "pfp0", "v001"


def pod_fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of pods, each by its namespace and name."""
    hashes = sorted(
        xxh64_intdigest(name.encode(), seed=xxh64_intdigest(namespace.encode())) for namespace, name in pods
    )
    return _PREFIX + _VERSION + xxh64_digest(b"".join(each.to_bytes(8, "little") for each in hashes)).hex()
