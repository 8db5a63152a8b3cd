"""The cluster as the operator knows it: one frozen snapshot, and the changes that lead from one to the next.

Owns assumed pods and what agents published. Pure: it watches nothing itself and decides nothing.
"""
