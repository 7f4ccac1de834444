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
from .._policy.secrets.places import Path, named_places, repeated_below, repeated_places, secret_paths
from .._policy.secrets.values import is_pattern, secret_values
from ..errors import InvalidOption
from .keys import VERSION, Keyring, Undecryptable

_MIN_REPEATED = 8  # characters of a secret value that is recognised where it is repeated
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidOption)
"""What JSON raises that an older version, or somebody else, has stored: such a row is left as it is."""

_Tree: TypeAlias = "dict[str | int, _Tree]"
"""Paths in a document, merged by what they begin with; where one ends it is empty."""

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
        return _Encryption(self._keyring, "payload", place, secret, values).fields(data)

    def encrypt_result(
        self, data: bytes, place: Place, secret: tuple[str, ...], values: Iterable[str] = ()
    ) -> bytes:
        """Do the same for a result, which may be any JSON, and all of which may be secret."""
        encryption = _Encryption(self._keyring, "result", place, secret, values)
        return encryption.encrypted(data, ()) if WHOLE in secret else encryption.whole(data)

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
            plain = self.decrypt_result(result, place)
            taken = (*taken, *(() if MARKER in plain else values_of(plain, secret)))
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

    def whole(self, data: bytes) -> bytes:
        """Encrypt the fields of these names in a document, and what repeats a value."""
        if not self._values and data[:1] not in (b"{", b"["):
            return data
        value = msgspec.json.decode(data)
        repeated = [*repeated_places(value, self._values)]
        if () in repeated:
            return self.encrypted(data, ())
        return self._encrypted_at([*named_places(value, self._secret), *repeated], data)

    def fields(self, data: bytes) -> bytes:
        """Do the same for an object that stays one, and keeps its own names."""
        if data[:1] != b"{":
            return data
        value = msgspec.json.decode(data)
        places = [*named_places(value, self._secret), *repeated_below(value, self._values)]
        return self._encrypted_at(places, data)

    def encrypted(self, data: bytes, path: Path) -> bytes:
        """Encrypt a value, unless it was encrypted before it came here, by a client of a server."""
        if data.startswith(MARKER):
            return data
        if MARKER in data:  # in parts, of which each has its own place
            data = self._decryption.whole(data, path)
        return _encode(self._keyring.encrypt(data, _encode((*self._context, path))))

    def _encrypted_at(self, places: Iterable[Path], data: bytes) -> bytes:
        tree: _Tree = {}
        for place in places:
            _add(tree, place)
        return self._at(data, (), tree) if tree else data

    def _at(self, data: bytes, path: Path, tree: _Tree) -> bytes:
        """Encrypt a value, or those below it that the tree has; what is unchanged stays byte for byte."""
        if not tree:
            return self.encrypted(data, path)
        if data[:1] == b"{":
            fields = {name: bytes(item) for name, item in _object.decode(data).items()}
            made = {
                name: self._at(item, (*path, name), tree[name]) if name in tree else item
                for name, item in fields.items()
            }
            return data if made == fields else _encode({name: Raw(item) for name, item in made.items()})
        items = [bytes(item) for item in _array.decode(data)]
        changed = [
            self._at(item, (*path, index), tree[index]) if index in tree else item
            for index, item in enumerate(items)
        ]
        return data if changed == items else _encode([Raw(item) for item in changed])


def _add(tree: _Tree, place: Path) -> None:
    """Add a path, unless it is within one that the tree has."""
    *above, last = place
    for key in above:
        is_new = key not in tree
        tree = tree.setdefault(key, {})
        if not tree and not is_new:
            return
    tree[last] = {}


class _Decryption:
    """The decryption of one document."""

    def __init__(self, keyring: Keyring, kind: str, place: Place) -> None:
        self.keyring = keyring
        self._context = (kind, place.type, place.tenant)

    def whole(self, data: bytes, path: Path) -> bytes:
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
