"""The commands. Each module is one verb: it reads what it was given, asks another room, and prints the answer.

The only room that imports click. Exit codes: 0 yes, 1 no, 2 usage or bad input, 3 the cluster or host could not be
asked.
"""
