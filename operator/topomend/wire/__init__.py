"""Convert the model to and from API objects, which are plain dictionaries.

Owns the layout of topomend's own kinds, every name in its API group, and the checks on objects from untrusted writers.
``document`` does the checking, each other module one kind or one part of a kind, under the name that it has in
``model``; ``published`` has those that agents write. Leaves the network to ``kube``, and what the values should be to
the rooms that write them.
"""
