"""Drain a cluster before topomend is uninstalled: no pod waits for it, no pod is lost, no pod has anything of it.

Owns the order of the steps and what each removes. Leaves open relaunches to the protocol in ``relaunch``, and deleting
the manifests to the user. A step does only what is not done yet, so a drain can be repeated at any time.
"""
