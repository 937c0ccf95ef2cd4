"""Structures of the documents that ``--json`` prints, one file per document.

Units are SI seconds, bytes and bytes per second. A value is null where it was not measured or does not apply. A change
that would mislead existing readers raises `document_version`; a new field does not. `docs/schema` has the JSON Schemas.
"""
