"""A Griffe extension: the API reference shows what classes document, and the fields of structs and enums."""

from typing import Any

from griffe import Class, Extension

_FIELDS_OF = ("Struct", "Enum", "Flag", "NamedTuple", "TypedDict")


class ReferenceMembers(Extension):
    """Leaves out attributes without a docstring, and special methods but `__init__`."""

    def on_class(self, *, cls: Class, **_: Any) -> None:
        has_fields = any(str(base).endswith(_FIELDS_OF) for base in cls.bases)
        for name, member in [*cls.members.items()]:
            is_special = name.startswith("__") and name != "__init__"
            is_inner = member.is_attribute and not member.has_docstring and not has_fields
            if is_special or is_inner:
                cls.del_member(name)
