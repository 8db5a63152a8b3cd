"""The formats of pictures, as ``-o`` has them. A module of its own: commands know them, and load no drawing."""

SVG, HTML = "svg", "html"

PICTURES = (SVG, HTML)
