"""The command lines ``topomend`` and ``kubectl numa``.

A door: it owns flags, output and exit codes, and is the only room that imports click. Each module here and in ``numa``
is one verb, or a folder where a verb has more; ``input`` and ``output`` are what verbs share. A verb reads its input,
calls another room, and prints the answer; it decides nothing. Exit codes: 0 yes, 1 no, 2 usage or bad input, 3 the
cluster or host could not be asked.
"""
