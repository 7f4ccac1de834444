"""Mask the passwords of URLs that were typed as arguments, wherever a message quotes them."""

import re
from collections.abc import Iterator, Sequence

_LONG = 2_000  # characters: a place that is as long is no place of a store
_HARMLESS = re.compile(r"[^\s:@?#]*(?::\d{1,5})?(?:/[^\s:@?#]*)?")  # host, port and path
_PASSWORD = re.compile(r"password\s*=", re.IGNORECASE)
_SLASHES = re.compile("//+")  # which a path does not keep
_CUT = "…"  # what replaces the middle of a long value
_PART = range(200, 2, -1)  # characters that are left of a value that was cut, at either end


def without_passwords(message: str, arguments: Sequence[str]) -> str:
    """Replace with an ellipsis what may hold a password in these arguments, wherever the message quotes it.

    It may quote an argument as it was typed, as a literal, normalised as a path, or without its middle.
    """
    for argument in arguments:
        for secret in _secrets(argument):
            for text in (secret, repr(secret)[1:-1], _SLASHES.sub("/", secret)):
                message = _without_parts(message.replace(text, _CUT), text)
    return message


def _secrets(argument: str) -> Iterator[str]:
    """The texts in an argument that may hold a password: of a URL, all after its scheme."""
    scheme, separator, rest = argument.partition("://")
    if separator and scheme[-1:].isalnum():
        if len(rest) > _LONG or not _HARMLESS.fullmatch(rest):
            yield rest
        return
    text = argument.lstrip("-")  # of an option, the value as well
    for one in (text, text.partition("=")[2]) if text != argument else (text,):
        if _PASSWORD.search(one) or _is_like_a_url(one):
            yield one


def _is_like_a_url(text: str) -> bool:
    """Whether it may be a URL without its slashes or scheme: no e-mail address, sentence or JSON."""
    return (
        "@" in text and not {":", "/"}.isdisjoint(text) and text[0] not in "{[\"'" and len(text.split()) == 1
    )


def _without_parts(message: str, text: str) -> str:
    """Remove the beginning and the end of a text that was cut in its middle."""
    if _CUT not in message:
        return message
    for length in _PART:
        message = message.replace(text[:length] + _CUT, _CUT).replace(_CUT + text[-length:], _CUT)
    return message
