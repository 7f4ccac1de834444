"""Keyring: the keys that secret fields are encrypted with."""

import base64
import binascii
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from .._policy.input.fingerprint import is_fingerprint
from .._policy.input.quote import quoted
from .._policy.secrets.encrypted import PREFIX
from ..errors import InvalidOption

KEY_BYTES = 32  # AES-256
VERSION = "1"
_NONCE_BYTES, _TAG_BYTES = 12, 16
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_DIGEST_LENGTH = 64


class Undecryptable(Exception):
    """An encrypted value that no key of the ring decrypts: its key is missing, or it was changed or moved."""


class Keyring:
    """Keys by id. The first encrypts, all decrypt, and the last one makes digests.

        Keyring.parse("2026-11:q0m…=,2026-05:Zk1…=")

    Raises InvalidOption if a key is malformed, or windlass[encryption] is not installed. Never shows a key.
    """

    def __init__(self, keys: Iterable[tuple[str, bytes]]) -> None:
        known: dict[str, bytes] = {}
        last = b""
        for key_id, last in keys:
            if _ID.fullmatch(key_id) is None:
                raise InvalidOption(
                    f"the id of an encryption key is 1 to 64 letters, digits, '_', '.' or '-', "
                    f"got {quoted(key_id)}"
                )
            if len(last) != KEY_BYTES:
                raise InvalidOption(
                    f"encryption key {key_id} must be {KEY_BYTES} bytes in base64, got {len(last)}; make one "
                    f"with `windlass encryption new-key`"
                )
            if known.setdefault(key_id, last) != last:
                raise InvalidOption(f"there are two different encryption keys with the id {key_id}")
        if not known:
            raise InvalidOption(
                "there is no encryption key; make one with `windlass encryption new-key`, or leave out the "
                "setting"
            )
        cipher = _cipher()
        self.ids = tuple(known)
        self.first = self.ids[0]
        self._ciphers = {key_id: cipher(key) for key_id, key in known.items()}
        self._digest_key = hmac.digest(last, b"windlass digests", "sha256")

    def __repr__(self) -> str:
        return f"<keyring {', '.join(self.ids)}>"

    @classmethod
    def parse(cls, text: str) -> "Keyring":
        """Read keys from text: `id:base64`, separated by commas or in lines; lines may be `#` comments."""
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        entries = [entry.strip() for line in lines for entry in line.split(",")]
        return cls(_entry(entry) for entry in entries if entry)

    @classmethod
    def read(cls, path: str | Path) -> "Keyring":
        """Read keys from a file, which must not be accessible to other users. Raises InvalidOption."""
        file = Path(path)
        try:
            with file.open(encoding="utf-8") as opened:
                mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
                if mode & 0o077:
                    raise InvalidOption(
                        f"the encryption key file {file} is accessible to other users (mode {mode:o}); "
                        f"run chmod 600 {file}"
                    )
                return cls.parse(opened.read())
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise InvalidOption(f"the encryption key file {file} cannot be read: {reason}") from None

    @classmethod
    def found(cls, text: str | None, file: str | None) -> "Keyring | None":
        """Return the keys in a text or in a file; None: neither is given. Raises InvalidOption."""
        if text and file:
            raise InvalidOption(
                "WINDLASS_ENCRYPTION_KEYS and a file of encryption keys exclude each other; give one of them"
            )
        if text:
            return cls.parse(text)
        return cls.read(file) if file else None

    # -- values --------------------------------------------------------------------------------------

    def encrypt(self, plain: bytes, place: bytes) -> str:
        """Encrypt a JSON value with the first key. It can be decrypted only with the same `place`."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._ciphers[self.first].encrypt(nonce, plain, place)
        return f"{PREFIX}{VERSION}:{self.first}:{base64.urlsafe_b64encode(sealed).decode()}"

    def decrypt(self, text: str, place: bytes) -> bytes:
        """Return the JSON value of an encrypted text. Raises Undecryptable."""
        version, _, rest = text.removeprefix(PREFIX).partition(":")
        key_id, _, encoded = rest.partition(":")
        cipher = self._ciphers.get(key_id)
        if cipher is None or version != VERSION:
            raise Undecryptable(f"no key {key_id}")
        try:
            sealed = base64.b64decode(encoded, altchars=b"-_", validate=True)
            if len(sealed) < _NONCE_BYTES + _TAG_BYTES:
                raise Undecryptable("too short")
            plain: bytes = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
        except (binascii.Error, ValueError, _invalid_tag()):
            raise Undecryptable(f"changed, or encrypted for another place, with key {key_id}") from None
        return plain

    def keyed(self, digest: str) -> str:
        """Return a digest that cannot be computed without the key, for one of a payload with secrets.

        Otherwise the secret could be found by trying values. The names of fields that follow the digest in a
        fingerprint stay; text that is no digest is returned as it is.
        """
        if not is_fingerprint(digest):
            return digest
        plain, names = digest[:_DIGEST_LENGTH], digest[_DIGEST_LENGTH:]
        return hmac.new(self._digest_key, plain.encode(), sha256).hexdigest() + names


def new_key(key_id: str) -> str:
    """Return a random key as an entry of a keyring. Raises InvalidOption for an invalid id."""
    key = secrets.token_bytes(KEY_BYTES)
    Keyring([(key_id, key)])
    return f"{key_id}:{base64.b64encode(key).decode()}"


def _entry(text: str) -> tuple[str, bytes]:
    key_id, colon, encoded = text.partition(":")
    if not colon:  # the text may be a key: do not repeat it
        raise InvalidOption("an encryption key must be given as id:base64; an entry has no colon")
    try:
        return key_id.strip(), base64.b64decode(encoded.strip(), validate=True)
    except ValueError:
        raise InvalidOption(f"encryption key {quoted(key_id)} is not valid base64") from None


def _cipher() -> Any:
    try:
        return import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM
    except ModuleNotFoundError as missing:
        raise InvalidOption("encryption needs an extra: pip install 'windlass[encryption]'") from missing


def _invalid_tag() -> type[Exception]:
    found: type[Exception] = import_module("cryptography.exceptions").InvalidTag
    return found
