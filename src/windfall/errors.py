"""The one family of errors: whose fault, whether a retry makes sense, a stable code, and what to do next. Pure."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """Who can solve it."""

    USER = "user"
    HOST = "host"
    CAPACITY = "capacity"
    CREDENTIALS = "credentials"
    OURS = "ours"


class WindfallError(Exception):
    """Base of every error that a person may see: `message` says where and what, `hint` what to do next."""

    kind: Kind = Kind.OURS
    code: str = "internal"
    retryable: bool = False
    exit_code: int = 1

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class BadInput(WindfallError):
    """The user's input cannot be used; nothing was started."""

    kind = Kind.USER
    code = "bad-input"
    exit_code = 2


class Unreachable(WindfallError):
    """The server cannot be reached or will not let us in."""

    kind = Kind.USER
    code = "unreachable"
    retryable = True
    exit_code = 3


class Missed(WindfallError):
    """The deadline or the budget was missed."""

    kind = Kind.CAPACITY
    code = "missed"
    exit_code = 4


class BadCredentials(WindfallError):
    """The provider or the server refuses these credentials."""

    kind = Kind.CREDENTIALS
    code = "bad-credentials"
    exit_code = 3
