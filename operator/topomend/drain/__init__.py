"""Take topomend out of a cluster: afterwards no pod waits for it, none is lost, and no pod carries anything of it.

Owns the order of the steps and what each removes. Leaves open relaunches to the protocol in ``relaunch``, and removing
the manifests to the user. Each step only does what is still missing, so a drain can be repeated at any time.
"""
