"""How a picture is put together and written: blocks, colours, and one SVG or HTML page.

Knows nothing of what it shows.
"""
