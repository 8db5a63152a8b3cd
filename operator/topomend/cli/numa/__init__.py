"""The kubectl plugin's verbs: ``kubectl numa show|explain|aligned|fit|relaunches|export|drain|check``.

One a file, or a folder. They read the cluster as a user with a kubeconfig; ``cluster`` does so for all. ``drain`` alone
changes it, through the room ``drain``.
"""
