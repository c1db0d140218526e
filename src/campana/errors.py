"""What can go wrong, by name.

The docstring of a class is its sentence: faces show it as the title. `code` is stable and machine-readable; `str(error)` says
which value was wrong and what to do. Nothing here knows HTTP.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One bad field: a JSON pointer to it, a code, and a sentence."""

    pointer: str
    code: str
    detail: str


class CampanaError(Exception):
    """Something went wrong."""

    code = "error"

    def __init__(self, detail: str = "") -> None:
        """Keep the sentence about this one case; the class's own is the fallback."""
        self.detail = detail or type(self).title()
        super().__init__(self.detail)

    @classmethod
    def title(cls) -> str:
        """Return the class's sentence."""
        return (cls.__doc__ or "").strip().splitlines()[0]


class InvalidError(CampanaError):
    """The request can be read, but something in it is not acceptable."""

    code = "invalid"

    def __init__(self, *faults: Fault) -> None:
        """Keep every fault, not only the first."""
        self.faults = faults
        super().__init__("; ".join(f"{fault.pointer}: {fault.detail}".removeprefix(": ") for fault in faults))


class UnreadableError(CampanaError):
    """The request can't be read."""

    code = "unreadable"


class NotFoundError(CampanaError):
    """There is no such thing here."""

    code = "not_found"


class ConflictError(CampanaError):
    """The thing is in a state that does not allow this."""

    code = "conflict"


class AlreadyFinalError(ConflictError):
    """The delivery has already ended."""

    code = "already_final"


class TryAgainError(ConflictError):
    """Something changed in this very moment: try again."""

    code = "try_again"


class InProgressError(ConflictError):
    """The first request with this idempotency key is still being carried out."""

    code = "idempotency_in_progress"
    retry_after = 1.0


class KeyReusedError(CampanaError):
    """The idempotency key was used for another request."""

    code = "idempotency_key_reused"


class TooManyError(CampanaError):
    """A limit is reached."""

    code = "too_many"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0) -> None:
        """Keep how many seconds to wait before trying again."""
        self.retry_after = retry_after
        super().__init__(detail)


class TooManyLiveError(TooManyError):
    """Too many deliveries of this tenant wait already."""

    code = "too_many_live"


class UnauthenticatedError(CampanaError):
    """The key is missing, wrong, expired or revoked."""

    code = "unauthenticated"


class ForbiddenError(CampanaError):
    """The key may not do this."""

    code = "forbidden"


class UnavailableError(CampanaError):
    """The database can't be reached right now."""

    code = "unavailable"

    def __init__(self, detail: str = "", *, retry_after: float = 2.0) -> None:
        """Keep how many seconds to wait before trying again."""
        self.retry_after = retry_after
        super().__init__(detail)


class SettingsError(CampanaError):
    """The settings are wrong."""

    code = "settings"


class LockedError(CampanaError):
    """Another engine already runs on this SQLite file."""

    code = "locked"


class IllegalTransitionError(CampanaError):
    """A delivery can't go from this state to that one."""

    code = "illegal_transition"


class TooLargeError(CampanaError):
    """The body is too large."""

    code = "too_large"


class WrongTypeError(CampanaError):
    """The body is of a type that is not read here."""

    code = "unsupported_type"


class MethodError(CampanaError):
    """This can't be done with what is here."""

    code = "method_not_allowed"
