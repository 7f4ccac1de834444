"""Encrypt and decrypt the secret fields of JSON documents: payloads, results, steps.

Values are encrypted as the JSON text that they are, and everything around them stays byte for byte. Each is
bound to its place: the kind of document, the task's type and tenant, and the path of the field. So a value
that is moved elsewhere does not decrypt; a copy in a task of a schedule or chain, which has the same place,
does.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from .._model.filter import TaskDocuments
from .._policy.input.chain import Step, all_secret, decode_steps, encode_steps, tenant_of
from .._policy.secrets.encrypted import MARKER, PREFIX
from .._policy.secrets.fields import WHOLE
from .._policy.secrets.values import is_pattern, secret_paths, secret_values
from ..errors import InvalidOption
from .keys import VERSION, Keyring, Undecryptable

_MIN_REPEATED = 8  # characters of a secret value that is recognised where it is repeated
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidOption)
"""What JSON raises that an older version, or somebody else, has stored: such a row is left as it is."""

_Path: TypeAlias = tuple[str | int, ...]

_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode


class Place(Struct, frozen=True):
    """Where a document belongs: the type and tenant of its task."""

    type: str
    tenant: str


class Documents:
    """Encrypts and decrypts documents with a keyring."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def encrypt_payload(
        self, data: bytes, place: Place, secret: tuple[str, ...], values: Iterable[str] = ()
    ) -> bytes:
        """Encrypt the fields of a payload that are named as secret, or contain one of these values."""
        return _Encryption(self._keyring, "payload", place, secret, values).below(data, ())

    def encrypt_result(
        self, data: bytes, place: Place, secret: tuple[str, ...], values: Iterable[str] = ()
    ) -> bytes:
        """Do the same for a result, which may be any JSON, and all of which may be secret."""
        encryption = _Encryption(self._keyring, "result", place, secret, values)
        return encryption.encrypted(data, ()) if WHOLE in secret else encryption.whole(data, ())

    def encrypt_steps(self, data: bytes, tenant: str, values: Iterable[str] = ()) -> bytes:
        """Encrypt the payloads of the steps that follow a task of this tenant."""
        steps, values = decode_steps(data), tuple(values)
        if not values and not all_secret(steps):
            return data
        encrypted = tuple(self._encrypted_step(step, tenant, values) for step in steps)
        return encode_steps(encrypted) or data

    def decrypt_payload(self, data: bytes, place: Place) -> bytes:
        """Decrypt what the keys of the ring can decrypt; the rest stays encrypted."""
        return self._decrypt(data, "payload", place)

    def decrypt_result(self, data: bytes, place: Place) -> bytes:
        """Do the same for a result."""
        return self._decrypt(data, "result", place)

    def decrypt_steps(self, data: bytes, tenant: str) -> bytes:
        """Do the same for the payloads of steps."""
        try:
            steps = decode_steps(data)
            return encode_steps(tuple(self._decrypted_step(step, tenant) for step in steps)) or data
        except UNREADABLE:
            return data

    def renew(
        self, documents: TaskDocuments, place: Place, secret: tuple[str, ...], taken: tuple[str, ...] = ()
    ) -> TaskDocuments:
        """Encrypt with the first key what another one has encrypted, and what is secret and not encrypted.

        `taken`: secret values in the results that the task took. What the ring cannot decrypt stays as it is.
        """
        payload = _Renewal(self._keyring, "payload", place).whole(documents.payload, ())
        plain = self.decrypt_payload(payload, place)
        values = () if MARKER in plain else values_of(plain, secret)
        steps, result = documents.next, documents.result
        if steps is not None:
            renewed = tuple(self._renewed_step(step, place.tenant) for step in decode_steps(steps))
            steps = self.encrypt_steps(encode_steps(renewed) or steps, place.tenant)
        if result is not None:
            result = _Renewal(self._keyring, "result", place).whole(result, ())
            result = self.encrypt_result(result, place, secret, (*values, *taken))
        payload = self.encrypt_payload(payload, place, secret)
        return TaskDocuments(payload=payload, next=steps, result=result)

    def _renewed_step(self, step: Step, before: str) -> Step:
        place = Place(step.type, tenant_of(step, before))
        payload = _Renewal(self._keyring, "payload", place).whole(bytes(step.payload), ())
        following = tuple(self._renewed_step(below, place.tenant) for below in step.next)
        return replace(step, payload=Raw(payload), next=following)

    def _encrypted_step(self, step: Step, before: str, values: tuple[str, ...]) -> Step:
        place = Place(step.type, tenant_of(step, before))
        payload = self.encrypt_payload(bytes(step.payload), place, step.secret, values)
        following = tuple(self._encrypted_step(below, place.tenant, values) for below in step.next)
        return replace(step, payload=Raw(payload), next=following)

    def _decrypted_step(self, step: Step, before: str) -> Step:
        place = Place(step.type, tenant_of(step, before))
        following = tuple(self._decrypted_step(below, place.tenant) for below in step.next)
        return replace(step, payload=Raw(self.decrypt_payload(bytes(step.payload), place)), next=following)

    def _decrypt(self, data: bytes, kind: str, place: Place) -> bytes:
        if MARKER not in data:
            return data
        try:
            return _Decryption(self._keyring, kind, place).whole(data, ())
        except UNREADABLE:
            return data


def encrypted_paths(result: bytes, secret: tuple[str, ...]) -> tuple[str, ...]:
    """Return where a result is encrypted besides its fields of these names."""
    paths = secret_paths(msgspec.json.decode(result), (PREFIX,))
    return tuple(path for path in paths if path not in secret and path.rpartition(".")[2] not in secret)


class _Encryption:
    """The encryption of one document."""

    def __init__(
        self, keyring: Keyring, kind: str, place: Place, secret: Iterable[str], values: Iterable[str]
    ) -> None:
        self._keyring = keyring
        self._context = (kind, place.type, place.tenant)
        self._decryption = _Decryption(keyring, kind, place)
        self._secret = frozenset(secret)
        self._values = tuple(values)

    def whole(self, data: bytes, path: _Path) -> bytes:
        """Encrypt a value if it has a secret in it that is not in a field below; else what is below."""
        if self._has_value(data) and (data[:1] not in b"{[" or self._has_value_in_names(data)):
            return self.encrypted(data, path)
        return self.below(data, path)

    def below(self, data: bytes, path: _Path) -> bytes:
        """Encrypt the secret fields in an object or array."""
        if data[:1] == b"{":
            fields = _object.decode(data)
            changed = {name: self._field(bytes(item), (*path, name)) for name, item in fields.items()}
            is_same = all(changed[name] == bytes(item) for name, item in fields.items())
            return data if is_same else _encode({name: Raw(item) for name, item in changed.items()})
        if data[:1] == b"[":
            items = [bytes(item) for item in _array.decode(data)]
            made = [self.whole(item, (*path, index)) for index, item in enumerate(items)]
            return data if made == items else _encode([Raw(item) for item in made])
        return data

    def _field(self, data: bytes, path: _Path) -> bytes:
        return self.encrypted(data, path) if self._is_secret(path) else self.whole(data, path)

    def encrypted(self, data: bytes, path: _Path) -> bytes:
        """Encrypt a value, unless it was encrypted before it came here, by a client of a server."""
        if data.startswith(MARKER):
            return data
        if MARKER in data:  # in parts, of which each has its own place
            data = self._decryption.whole(data, path)
        return _encode(self._keyring.encrypt(data, _encode((*self._context, path))))

    def _is_secret(self, path: _Path) -> bool:
        names = [one for one in path if isinstance(one, str)]
        return names[-1] in self._secret or ".".join(names) in self._secret

    def _has_value(self, data: bytes) -> bool:
        if not self._values:
            return False
        text = data.decode()
        return any(value in text for value in self._values)

    def _has_value_in_names(self, data: bytes) -> bool:
        return data[:1] == b"{" and any(self._has_value(name.encode()) for name in _object.decode(data))


class _Decryption:
    """The decryption of one document."""

    def __init__(self, keyring: Keyring, kind: str, place: Place) -> None:
        self.keyring = keyring
        self._context = (kind, place.type, place.tenant)

    def whole(self, data: bytes, path: _Path) -> bytes:
        if MARKER not in data:
            return data
        if data.startswith(MARKER):
            try:
                return self._opened(_text.decode(data), _encode((*self._context, path)))
            except Undecryptable:
                return data
        if data[:1] == b"{":
            fields = _object.decode(data).items()
            return _encode({name: Raw(self.whole(bytes(item), (*path, name))) for name, item in fields})
        if data[:1] == b"[":
            items = enumerate(_array.decode(data))
            return _encode([Raw(self.whole(bytes(item), (*path, index))) for index, item in items])
        return data

    def _opened(self, text: str, place: bytes) -> bytes:
        """Return the JSON in place of an encrypted value. Raises Undecryptable."""
        return self.keyring.decrypt(text, place)


class _Renewal(_Decryption):
    """The encryption of one document's encrypted values with the first key."""

    def _opened(self, text: str, place: bytes) -> bytes:
        if text.startswith(f"{PREFIX}{VERSION}:{self.keyring.first}:"):
            return _encode(text)
        return _encode(self.keyring.encrypt(self.keyring.decrypt(text, place), place))


def values_of(payload: bytes, secret: tuple[str, ...]) -> tuple[str, ...]:
    """Return the secret values of a decrypted payload that a result or a successor might repeat.

    Short ones are left out: they would be found by chance in much that is not secret.
    """
    if not secret:
        return ()
    try:
        found = secret_values(msgspec.json.decode(payload), secret)
    except UNREADABLE:
        return ()
    return repeatable(found)


def repeatable(values: Iterable[str]) -> tuple[str, ...]:
    """Return those of these secret values that are recognised where they are repeated."""
    return tuple(value for value in values if len(value) >= _MIN_REPEATED and not is_pattern(value))
