"""The model to and from API objects, as plain dicts, and the versions of those objects. No network, no files."""
