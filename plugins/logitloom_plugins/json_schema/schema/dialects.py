"""Which draft a schema is written in, and what that changes.

References:
    JSON Schema, drafts 4, 6, 7, 2019-09 and 2020-12; https://json-schema.org/specification.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from logitloom.errors import UnsupportedSchema

__all__ = ["DIALECTS", "LATEST", "Dialect", "dialect_of"]


class Dialect(NamedTuple):
    """What differs between drafts, as far as validation is concerned.

    Attributes:
        name: ``draft4``, ``draft6``, ``draft7``, ``2019-09`` or ``2020-12``.
        number: for comparisons: 4, 6, 7, 8 (2019-09), 9 (2020-12).
        asserts_format: whether ``format`` is an assertion unless told otherwise.
    """

    name: str
    number: int
    asserts_format: bool

    @property
    def id_keyword(self) -> str:
        """``id`` in draft 4, ``$id`` after."""
        return "id" if self.number == 4 else "$id"

    @property
    def ref_hides_siblings(self) -> bool:
        """Up to draft 7 everything beside ``$ref`` is ignored."""
        return self.number <= 7


LATEST: Final = Dialect("2020-12", 9, False)
#: A schema that names no draft: the latest, but people who write ``format`` there mean it.
UNNAMED: Final = Dialect("2020-12", 9, True)

DIALECTS: Final[dict[str, Dialect]] = {
    "http://json-schema.org/draft-04/schema": Dialect("draft4", 4, True),
    "http://json-schema.org/draft-06/schema": Dialect("draft6", 6, True),
    "http://json-schema.org/draft-07/schema": Dialect("draft7", 7, True),
    "https://json-schema.org/draft/2019-09/schema": Dialect("2019-09", 8, False),
    "https://json-schema.org/draft/2020-12/schema": LATEST,
    "http://json-schema.org/schema": LATEST,
}


def dialect_of(schema: Any, inherited: Dialect | None, pointer: str) -> Dialect:
    """The draft that ``$schema`` names, or the inherited one.

    Raises:
        UnsupportedSchema: if it names a meta-schema that is none of the drafts 4 to 2020-12.

    Example:
        >>> dialect_of({"$schema": "http://json-schema.org/draft-07/schema#"}, None, "").name
        'draft7'
    """
    name = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(name, str):
        return inherited if inherited is not None else UNNAMED
    known = name.removesuffix("#")
    found = DIALECTS.get(known) or DIALECTS.get(known.replace("https://", "http://", 1))
    if found is None:
        found = DIALECTS.get(known.replace("http://", "https://", 1))
    if found is None:
        raise UnsupportedSchema(
            f"The schema at {pointer or '#'} names the meta-schema {name!r}, whose keywords are not known here. "
            f"Known are the drafts 4, 6, 7, 2019-09 and 2020-12; remove $schema or name one of them."
        )
    return found
