"""The errors of the seam by their codes, as a store elsewhere reports them."""

from .. import errors

_KINDS: dict[str, type[errors.WindlassError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.WindlassError)
}


def error_of(code: str, detail: str, standing: str = "") -> errors.WindlassError | None:
    """Return the error of this code; None if this version of windlass does not know it."""
    kind = _KINDS.get(code)
    if kind is None:
        return None
    if issubclass(kind, errors.DuplicateTask | errors.DuplicateKey | errors.IdempotencyConflict):
        return kind(detail, standing=standing)
    return kind(detail)


def standing_of(error: errors.WindlassError) -> str:
    """Return the id of the task that stands in the way, if the error names one."""
    return str(getattr(error, "standing", ""))
