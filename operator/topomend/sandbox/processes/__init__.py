"""The processes of a sandbox: the supervisor in its namespaces, and ports, paths and kernel features of the host.

Leaves to ``plan`` which programs run.
"""
