"""Who writes an object: the field managers that the API server keeps in ``metadata.managedFields``."""

from collections.abc import Mapping
from typing import Any

MAX_NAMED = 3
"""How many are named: there may be any number, of 128 characters each."""

_OF_OTHERS = {"f:metadata", "f:status"}


def other_writer(content: Mapping[str, Any], manager: str) -> str:
    """The field managers other than ``manager`` that write the object's content, as text; empty where there are none.

    Anybody may write the metadata, and a status, which a controller reports of what it read.
    """
    entries = content.get("metadata", {}).get("managedFields") or ()
    writers = [entry.get("manager", "") for entry in entries if set(entry.get("fieldsV1") or ()) - _OF_OTHERS]
    others = sorted({manager_name or "somebody without a name" for manager_name in writers if manager_name != manager})
    if others:
        more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
        return ", ".join(others[:MAX_NAMED]) + more
    return "" if writers else "somebody who left no name"
