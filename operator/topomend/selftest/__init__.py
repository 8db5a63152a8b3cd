"""The room of ``kubectl numa selftest``: which pods try a node, what replay predicts of them, and whether it was so.

Pure: it gets what was read, and hands over pods and judgements. Creating and watching the pods is left to the command.
"""
