"""The types are those of the server's OpenAPI document: ECLUSA_URL."""

import json
import os
import unittest
import urllib.request
from typing import get_args

from eclusa import types

DOCUMENT = json.load(urllib.request.urlopen(os.environ["ECLUSA_URL"] + "/openapi.json", timeout=30))
SCHEMAS = DOCUMENT["components"]["schemas"]


def members(schema):
    """The properties of a schema, and those that are always there."""
    properties, required = set(schema.get("properties", {})), set(schema.get("required", []))
    for part in schema.get("allOf", []):
        part = SCHEMAS[part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else part
        more, always = members(part)
        properties |= more
        required |= always
    return properties, required


class TypesTest(unittest.TestCase):
    def test_every_type_has_the_fields_of_its_schema(self):
        compared = 0
        for name, type in vars(types).items():
            if name.startswith("_") or not hasattr(type, "__required_keys__"):
                continue
            properties, required = members(SCHEMAS[name])
            self.assertEqual(set(type.__annotations__), properties, name)
            self.assertLessEqual(type.__required_keys__, properties, name)
            if not name.endswith("Request"):
                # Fields that the server may omit must be optional here.
                self.assertLessEqual(type.__required_keys__ - required, OPTIONAL_BUT_NULL.get(name, set()), name)
            compared += 1
        self.assertGreater(compared, 20)

    def test_closed_lists_match_the_document(self):
        self.assertEqual(set(get_args(types.JobStatus)), set(SCHEMAS["JobStatus"]["enum"]))
        self.assertEqual(set(get_args(types.Priority)), set(SCHEMAS["Priority"]["enum"]))


#: Fields that the server always sends, as null if absent.
OPTIONAL_BUT_NULL = {"LastFailure": {"code", "at", "upstream"}}


if __name__ == "__main__":
    unittest.main()
