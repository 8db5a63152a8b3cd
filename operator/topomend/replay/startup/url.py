"""What net/url.Parse says of a URL: its scheme, or why it is none.

Go's rules for hosts in brackets differ from one Go release to the next; such hosts are not judged here.
"""

import re

from topomend.replay.startup.go_text import quote

_SCHEME = re.compile("([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)
_PORT = re.compile("(?::[0-9]*)?")
_ESCAPE = re.compile("%[0-9a-fA-F]{2}")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_NO_HOST = re.compile(r"[ \\^`{|}]")


class InvalidURL(ValueError):
    """A text that Go does not parse. The error's text is Go's."""


def scheme_of(url: str) -> str:
    """The scheme in lower case; empty if there is none. Raises InvalidURL."""
    without_fragment, _, fragment = url.partition("#")
    try:
        scheme = _parse(without_fragment)
    except InvalidURL as error:
        raise InvalidURL(f"parse {quote(without_fragment)}: {error}") from error
    if wrong := _wrong_escape(fragment):
        raise InvalidURL(f"parse {quote(url)}: {wrong}")
    return scheme


def _parse(url: str) -> str:
    if re.search("[\x00-\x1f\x7f]", url):
        raise InvalidURL("net/url: invalid control character in URL")
    if url.startswith(":"):
        raise InvalidURL("missing protocol scheme")
    matched = _SCHEME.fullmatch(url)
    scheme, rest = (matched[1].lower(), matched[2]) if matched else ("", url)
    rest = rest.partition("?")[0]
    if not rest.startswith("/"):
        _check_rootless(scheme, rest)
        return scheme
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        _check_authority(authority)
        rest = slash + path
    if wrong := _wrong_escape(rest):
        raise InvalidURL(wrong)
    return scheme


def _check_rootless(scheme: str, rest: str) -> None:
    if scheme:
        return
    if ":" in rest.partition("/")[0]:
        raise InvalidURL("first path segment in URL cannot contain colon")
    if wrong := _wrong_escape(rest):
        raise InvalidURL(wrong)


def _check_authority(authority: str) -> None:
    user, at, host = authority.rpartition("@")
    _check_host(host)
    if not at:
        return
    if not _USER.fullmatch(user):
        raise InvalidURL("net/url: invalid userinfo")
    if wrong := _wrong_escape(user):
        raise InvalidURL(wrong)


def _check_host(host: str) -> None:
    if host.startswith("["):
        return
    if "[" in host:
        raise InvalidURL("invalid IP-literal")
    port = host[host.rindex(":") :] if ":" in host else ""
    if not _PORT.fullmatch(port):
        raise InvalidURL(f"invalid port {quote(port)} after host")
    if wrong := _wrong_escape(host):
        raise InvalidURL(wrong)
    # In a host only a percent sign and letters beyond ASCII may be escaped.
    for escape in _ESCAPE.findall(host):
        if escape != "%25" and int(escape[1:], 16) < 0x80:
            raise InvalidURL(f"invalid URL escape {quote(escape)}")
    if matched := _NO_HOST.search(host):
        raise InvalidURL(f"invalid character {quote(matched[0])} in host name")


def _wrong_escape(text: str) -> str:
    for matched in re.finditer("%", text):
        escape = text[matched.start() : matched.start() + 3]
        if not _ESCAPE.fullmatch(escape):
            return f"invalid URL escape {quote(escape)}"
    return ""
