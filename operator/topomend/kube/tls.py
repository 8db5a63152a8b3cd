"""What is asked of a cluster's certificates: what Go's TLS asks, with which kubectl and every kubelet verify them."""

import ssl


def as_clusters_are(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context without OpenSSL's strict mode, which Python turns on since 3.13.

    It refuses authorities that lack extensions of RFC 5280: Amazon EKS makes all of its own without a key identifier,
    MicroK8s made its own without a key usage (kubernetes-client/python#2394, canonical/microk8s#5537). Chain, dates and
    names are verified as before.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
