"""RSA as BOINC clients check it: 1024 bits, PKCS#1 v1.5 over the hexadecimal MD5, without DigestInfo. Pure arithmetic.

The client fixes size and padding. Keys come from the system's random numbers.
"""

from __future__ import annotations

import hashlib
import secrets

from msgspec import Struct

BITS = 1024
BYTES = BITS // 8
EXPONENT = 65537
_ROUNDS = 40
"""Of Miller and Rabin: a composite number passes with a probability below 4 ** -40."""
_SMALL = [n for n in range(3, 2000, 2) if all(n % d for d in range(3, int(n**0.5) + 1, 2))]


class PublicKey(Struct, frozen=True):
    modulus: int
    exponent: int = EXPONENT

    def text(self) -> str:
        """As it stands between <code_sign_key> and its end, without white space around it."""
        raw = self.modulus.to_bytes(BYTES, "big") + self.exponent.to_bytes(BYTES, "big")
        return f"{BITS}\n{hex_lines(raw)}".strip()


def public_of(text: str) -> PublicKey:
    """The key of such a text. One that is none fits no signature."""
    digits = "".join(text.split()[1:-1])
    try:
        return PublicKey(max(1, int(digits[: 2 * BYTES], 16)), int(digits[2 * BYTES :], 16))
    except ValueError:
        return PublicKey(1)


class PrivateKey(Struct, frozen=True):
    modulus: int
    secret: int
    exponent: int = EXPONENT

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.modulus, self.exponent)


def hex_lines(raw: bytes) -> str:
    """64 digits a line, then a dot."""
    digits = raw.hex()
    return "".join(digits[at : at + 64] + "\n" for at in range(0, len(digits), 64)) + ".\n"


def generate() -> PrivateKey:
    while True:
        p, q = _prime(BITS // 2), _prime(BITS // 2)
        modulus = p * q
        if p != q and modulus.bit_length() == BITS:
            return PrivateKey(modulus, pow(EXPONENT, -1, (p - 1) * (q - 1)))


def _prime(bits: int) -> int:
    while True:
        # The two highest bits are set, so that the product has all its bits.
        found = secrets.randbits(bits) | (3 << (bits - 2)) | 1
        if found % EXPONENT != 1 and _is_prime(found):
            return found


def _is_prime(n: int) -> bool:
    if any(n % small == 0 for small in _SMALL):
        return False
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(n, odd, twos) for _ in range(_ROUNDS))


def _passes(n: int, odd: int, twos: int) -> bool:
    x = pow(secrets.randbelow(n - 3) + 2, odd, n)
    if x in (1, n - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


def _padded(data: bytes) -> int:
    message = hashlib.md5(data, usedforsecurity=False).hexdigest().encode()
    return int.from_bytes(b"\x00\x01" + b"\xff" * (BYTES - 3 - len(message)) + b"\x00" + message, "big")


def sign(key: PrivateKey, data: bytes) -> str:
    """The signature of `data` as the client reads it: four lines of digits and a dot."""
    return hex_lines(pow(_padded(data), key.secret, key.modulus).to_bytes(BYTES, "big"))


def verify(key: PublicKey, data: bytes, signature: str) -> bool:
    try:
        raw = bytes.fromhex("".join(signature.partition(".")[0].split()))
    except ValueError:
        return False
    return len(raw) == BYTES and pow(int.from_bytes(raw, "big"), key.exponent, key.modulus) == _padded(data)
