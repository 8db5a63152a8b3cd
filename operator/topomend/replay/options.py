"""Parse the values of policy options, with the errors of Go's strconv that the kubelet shows."""

from collections.abc import Mapping

TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class InvalidOption(ValueError):
    """An option with which the kubelet does not start. The text is the kubelet's error."""


def parse_bool(name: str, text: str) -> bool:
    """Parse the boolean value of option ``name`` (strconv.ParseBool). Raises InvalidOption."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise InvalidOption(
        f"bad value for option {quoted(name)}: strconv.ParseBool: parsing {quoted(text)}: invalid syntax"
    )


def quoted(text: str) -> str:
    """``text`` in double quotes, as Go's %q writes printable text."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def go_map(options: Mapping[str, str]) -> str:
    """``options`` as Go's %v prints a map."""
    return "map[" + " ".join(f"{name}:{options[name]}" for name in sorted(options)) + "]"
