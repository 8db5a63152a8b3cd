"""Random clusters full of pods of low priority, and pods of high priority that need room: plain and steered.

Beside the plain scheduler no pod may be worse off: what runs plain runs steered, with no more victims, and no victim is
evicted in vain.
"""
