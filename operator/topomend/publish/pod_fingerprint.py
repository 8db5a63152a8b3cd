"""Compute the fingerprint of a node's pods, by which schedulers see whether a NodeResourceTopology covers all.

Format v001 of github.com/k8stopologyawareschedwg/podfingerprint: a hash of namespaces and names in any order.
"""

from collections.abc import Iterable

from xxhash import xxh64_digest, xxh64_intdigest

_PREFIX, _VERSION = "pfp0", "v001"


def pod_fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of ``pods``, pairs of namespace and name, such as ``pfp0v001`` and 16 hex digits."""
    hashes = sorted(
        xxh64_intdigest(name.encode(), seed=xxh64_intdigest(namespace.encode())) for namespace, name in pods
    )
    return _PREFIX + _VERSION + xxh64_digest(b"".join(pod_hash.to_bytes(8, "little") for pod_hash in hashes)).hex()
