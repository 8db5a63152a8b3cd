"""The text of a file, in whichever encoding an editor wrote it."""

import codecs


def decoded(content: bytes, errors: str = "strict") -> str:
    """UTF-8, or UTF-16 where a byte order mark says so, without that mark. Raises UnicodeDecodeError if ``strict``."""
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_wide else "utf-8-sig", errors=errors)
