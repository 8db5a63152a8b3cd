"""Verify a cluster's certificates as strictly as Go's TLS does, which kubectl and every kubelet use."""

import ssl


def as_clusters_are(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context without OpenSSL's strict mode, which Python enables by default since 3.13.

    Strict mode refuses authorities that lack extensions of RFC 5280. Amazon EKS creates its authorities without a key
    identifier, and MicroK8s created its own without a key usage (kubernetes-client/python#2394,
    canonical/microk8s#5537). Chain, dates and names are still verified.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
