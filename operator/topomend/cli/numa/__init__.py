"""The kubectl plugin's verbs, one a file: ``kubectl numa show|explain|fit|relaunches|export|drain|check``.

They read the cluster as a user with a kubeconfig. ``drain`` alone changes it, through the room ``drain``.
"""
