"""Reading the managers' policy options: texts to values, with the errors of Go's strconv that a kubelet would show."""

from collections.abc import Mapping

TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class InvalidOption(ValueError):
    """An option for which the kubelet would refuse to start; its text is the kubelet's."""


def parse_bool(name: str, text: str) -> bool:
    """Read a switch as strconv.ParseBool does. Raises InvalidOption."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise InvalidOption(
        f"bad value for option {quoted(name)}: strconv.ParseBool: parsing {quoted(text)}: invalid syntax"
    )


def quoted(text: str) -> str:
    """A text in double quotes, as Go's %q writes it for printable ones."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def go_map(options: Mapping[str, str]) -> str:
    """A map as Go's %v prints it."""
    return "map[" + " ".join(f"{name}:{options[name]}" for name in sorted(options)) + "]"
