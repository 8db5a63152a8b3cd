"""The colours of pictures, light and dark, and the style sheet that uses them.

No fact is told by colour alone: each colour stands beside a letter, a word or a pattern. Every text has a contrast of
at least 4.5 to what is behind it (WCAG 2.2, 1.4.3), every edge that separates two facts 3 (1.4.11); a test computes it.
"""

from collections.abc import Mapping

HOLDER_COLOURS = 8
"""So many colours of holders there are; the letters tell those apart that share one."""

_HOLDERS_LIGHT = ("#a5d8ff", "#ffd8a8", "#d0bfff", "#b2f2bb", "#ffc9c9", "#99e9f2", "#eebefa", "#ffec99")
_HOLDERS_DARK = ("#1864ab", "#994008", "#5f3dc4", "#237032", "#b02525", "#0b7285", "#862e9c", "#7a5c00")

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "text": "#1b1f24",
    "muted": "#4f5862",
    "edge": "#7c8691",
    "machine": "#f3f5f7",
    "package": "#e6eaee",
    "numa": "#ffffff",
    "cache": "#f3f5f7",
    "core": "#dfe4e9",
    "free": "#ffffff",
    "reserved": "#c4ccd4",
    "device": "#fff8e6",
    "bad": "#b42318",
    "good": "#176639",
    "link": "#0a58a8",
    **{f"h{number}": colour for number, colour in enumerate(_HOLDERS_LIGHT)},
}

DARK: Mapping[str, str] = {
    "page": "#14181d",
    "text": "#eef1f4",
    "muted": "#aeb8c2",
    "edge": "#78828d",
    "machine": "#1b2027",
    "package": "#252b33",
    "numa": "#14181d",
    "cache": "#1e242b",
    "core": "#303841",
    "free": "#14181d",
    "reserved": "#4a545f",
    "device": "#2b2717",
    "bad": "#ff8a80",
    "good": "#7ddc9c",
    "link": "#8cc4ff",
    **{f"h{number}": colour for number, colour in enumerate(_HOLDERS_DARK)},
}

MONO_EM = 0.61
"""The width of a letter of the fonts below, as a part of their size; DejaVu Sans Mono, the widest, has 0.602."""

_MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
_SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans','DejaVu Sans',sans-serif"


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


DRAWING_CSS = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    f"@media(prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    f"svg text{{font-family:{_MONO};font-size:11px;fill:var(--text)}}"
    "svg .back{fill:var(--page)}"
    "svg text.title{font-size:16px;font-weight:700}"
    "svg text.strong{font-weight:700}"
    "svg text.muted{fill:var(--muted)}"
    "svg text.bad{fill:var(--bad);font-weight:700}"
    "svg text.good{fill:var(--good);font-weight:700}"
    "svg text.no{font-size:9px}"
    "svg text.mark{font-size:12px;font-weight:700}"
    "svg .box{stroke:var(--edge);stroke-width:1}"
    + "".join(f"svg .{kind}{{fill:var(--{kind})}}" for kind in ("machine", "package", "numa", "cache", "core"))
    + "svg .free{fill:var(--free)}svg .reserved{fill:var(--reserved)}"
    "svg .pci{fill:var(--device)}"
    "svg .offline{fill:none;stroke-dasharray:3 2}"
    "svg .isolated{stroke-width:2;stroke-dasharray:6 2}"
    "svg .several{fill:var(--reserved)}svg .several,svg .goes{stroke:var(--bad);stroke-width:3}"
    "svg .line{stroke:var(--text);stroke-width:2}"
    "svg .hatch{stroke:var(--text);stroke-width:1}"
    "svg .track{fill:var(--free)}"
    "svg .taken{fill:var(--text)}"
    + "".join(f"svg .h{number}{{fill:var(--h{number})}}" for number in range(HOLDER_COLOURS))
)
"""For every drawing, alone or in a page."""

PAGE_CSS = (
    f"body{{margin:0 auto;padding:1rem;max-width:1320px;background:var(--page);color:var(--text);"
    f"font:1rem/1.5 {_SANS}}}"
    "h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.25rem;margin:2rem 0 .5rem}"
    "p{max-width:70rem;margin:.35rem 0;overflow-wrap:anywhere}p.muted,footer{color:var(--muted)}"
    "a{color:var(--link)}"
    ":focus-visible{outline:3px solid var(--link);outline-offset:2px}"
    ".skip{position:absolute;left:-99rem}.skip:focus{position:static}"
    ".wide{overflow-x:auto;margin:.5rem 0}"
    "svg{display:block;height:auto}"
    "table{border-collapse:collapse;margin:1rem 0;font-size:.9rem}"
    "caption{text-align:left;font-weight:700;padding:.25rem 0}"
    "th,td{border:1px solid var(--edge);padding:.25rem .6rem;text-align:left;vertical-align:top}"
    "thead th{background:var(--package);white-space:nowrap}tbody th{font-weight:600;min-width:5rem}"
    "nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;padding:0;list-style:none}"
    "@media print{.skip,nav{display:none}.wide{overflow:visible}}"
)
"""For pages besides."""
