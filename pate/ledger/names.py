"""What a data set is called: to its owner by its fingerprint, to everybody else by its name."""

from __future__ import annotations

import re

_FINGERPRINT = re.compile(r"(.+)-[0-9a-f]{16}")
"""As private data name themselves: the name given to them, and a hash of the ids of who is in them."""


def public_name(fingerprint: str) -> str:
    """The name without the hash. Whoever knows all ids but one could try out on the hash whether the last is among them.

    >>> public_name("ward-0123456789abcdef"), public_name("patients-2024")
    ('ward', 'patients-2024')
    """
    found = _FINGERPRINT.fullmatch(fingerprint)
    return fingerprint if found is None else found[1]


def namesakes(fingerprint: str, known: list[str]) -> list[str]:
    """The fingerprints among ``known`` of other data with the same name.

    >>> namesakes("ward-0123456789abcdef", ["ward-0123456789abcdef", "ward-fedcba9876543210", "ward-2-fedcba9876543210"])
    ['ward-fedcba9876543210']
    """
    name = public_name(fingerprint)
    if name == fingerprint:
        return []
    return [each for each in known if each not in (fingerprint, name) and public_name(each) == name]
