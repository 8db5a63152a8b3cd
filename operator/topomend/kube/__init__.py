"""The clients of the Kubernetes API and of the kubelet, with one tree of errors for all of them.

``client`` is for the operator and the commands, ``agent_client`` a small one for the agent, ``kubelet_client`` asks one
kubelet; ``connection`` is how all of them reach a server. Owns credentials, TLS, paging and the translation of errors.
Leaves to its callers what to request, and whether to retry.
"""
