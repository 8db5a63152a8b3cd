"""The pods of a cluster that a verb asks about: those that came, those that may go, and those that may move."""
