"""Which fields a reader asks an object for, and whether a shape of ``topomend.wire.shapes`` has them."""

from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict


class Asked(dict[str, Any]):
    """An object that remembers which of its fields were asked for, and those of the objects in it."""

    def __init__(self, content: dict[str, Any], seen: set[str], path: str = "") -> None:
        super().__init__({key: _asked(value, seen, f"{path}.{key}") for key, value in content.items()})
        self._seen, self._path = seen, path

    def __getitem__(self, key: str) -> Any:
        self._seen.add(f"{self._path}.{key}")
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._seen.add(f"{self._path}.{key}")
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._seen.add(f"{self._path}.{key}")
        return super().get(key, default)


def _asked(value: Any, seen: set[str], path: str) -> Any:
    if isinstance(value, dict):
        return Asked(value, seen, path)
    return [_asked(each, seen, path) for each in value] if isinstance(value, list) else value


def left_out(seen: set[str], shape: Any) -> set[str]:
    """Those of the fields, such as ``.spec.containers.name``, that the shape leaves out."""
    return {path for path in seen if not _has(shape, path.split(".")[1:])}


def _has(shape: Any, path: list[str]) -> bool:
    if get_origin(shape) is UnionType:
        (shape,) = (each for each in get_args(shape) if each is not NoneType)
    if get_origin(shape) is list:
        (shape,) = get_args(shape)
    if not path or not is_typeddict(shape):
        return True
    hints = get_type_hints(shape)
    return path[0] in hints and _has(hints[path[0]], path[1:])
