"""The pictures of the documentation, made by the commands themselves, and what a real browser makes of each."""
