"""The messages of A2A as schemas of JSON, made of what the SDK reads and writes them by.

    shapes = Shapes("v1")
    shapes.answered(pb.Task)       # {"$ref": "#/components/schemas/v1.Task"}
    shapes.sent(pb.Message)        # {"$ref": "#/components/schemas/v1.Message.sent"}
    shapes.schemas                 # what these refer to

What is answered has no field that is not there. What is sent may have others, which nobody reads;
it may be null where a field may be missing; and a number may be written as a string, for that is
how protobuf reads JSON. It decides, and does nothing.
"""

from collections.abc import Mapping
from typing import Any

from google.api.field_behavior_pb2 import REQUIRED, field_behavior
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

__all__ = ["COMPONENTS", "Json", "Shapes"]

Json = dict[str, Any]
Descriptor = Any
Field = Any
"""Protobuf's own, of which there are several kinds that have nothing but their look in common."""

COMPONENTS = "#/components/schemas/"
_INT32 = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
_DIGITS = {"type": "string", "pattern": "^-?[0-9]{1,9}$"}
_WELL_KNOWN: Mapping[str, Json] = {
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
}


class Shapes:
    """The schemas of one edition, by the messages that were asked for."""

    def __init__(self, edition: str, tighter: Mapping[str, Json] | None = None) -> None:
        """`tighter` says of what is sent, by message or field, what we ask for beyond its type."""
        self._edition = edition
        self._tighter = tighter or {}
        self.schemas: dict[str, Json] = {}

    def sent(self, kind: type[Message]) -> Json:
        """Return what may be sent as a message."""
        return self._reference(kind.DESCRIPTOR, is_sent=True)

    def answered(self, kind: type[Message]) -> Json:
        """Return what is answered as a message."""
        return self._reference(kind.DESCRIPTOR, is_sent=False)

    def field(self, kind: type[Message], name: str) -> Json:
        """Return what may be sent as one field of a message, in a query."""
        field = kind.DESCRIPTOR.fields_by_camelcase_name[name]
        return {**self._value(field, is_sent=False), **self._more(field)}

    def _reference(self, message: Descriptor, *, is_sent: bool) -> Json:
        if message.full_name in _WELL_KNOWN:
            return dict(_WELL_KNOWN[message.full_name])
        name = f"{self._edition}.{message.name}{'.sent' if is_sent else ''}"
        if name not in self.schemas:
            self.schemas[name] = {}  # a message may have itself in it
            self.schemas[name].update(self._object(message, is_sent=is_sent))
        return {"$ref": COMPONENTS + name}

    def _object(self, message: Descriptor, *, is_sent: bool) -> Json:
        schema: Json = {
            "type": "object",
            "properties": {
                each.camelcase_name: self._field(each, is_sent=is_sent) for each in message.fields
            },
        }
        if required := [each.camelcase_name for each in message.fields if _is_required(each)]:
            schema["required"] = required
        for choice in message.oneofs:
            if not _is_presence(choice):
                schema["oneOf"] = [{"required": [each.camelcase_name]} for each in choice.fields]
        if is_sent:
            schema.update(self._tighter.get(message.name, {}))
        else:
            schema["additionalProperties"] = False
        return schema

    def _field(self, field: Field, *, is_sent: bool) -> Json:
        schema = self._value(field, is_sent=is_sent)
        if field.is_repeated and not _is_map(field):
            schema = {"type": "array", "items": schema}
        if not is_sent:
            return schema
        schema = {**schema, **self._more(field)}
        is_choice = field.containing_oneof is not None and not _is_presence(field.containing_oneof)
        needed = self._tighter.get(field.containing_type.name, {}).get("required", ())
        if _is_required(field) or field.camelcase_name in needed or is_choice or not schema:
            return schema
        if isinstance(schema.get("type"), str):
            return {**schema, "type": [schema["type"], "null"]}
        return {"anyOf": [schema, {"type": "null"}]}

    def _more(self, field: Field) -> Json:
        return self._tighter.get(f"{field.containing_type.name}.{field.camelcase_name}", {})

    def _value(self, field: Field, *, is_sent: bool) -> Json:
        match field.type:
            case FieldDescriptor.TYPE_STRING:
                return {"type": "string"}
            case FieldDescriptor.TYPE_BYTES:
                return {"type": "string", "format": "byte", "contentEncoding": "base64"}
            case FieldDescriptor.TYPE_BOOL:
                return {"type": "boolean"}
            case FieldDescriptor.TYPE_INT32:
                return {"anyOf": [_INT32, _DIGITS]} if is_sent else dict(_INT32)
            case FieldDescriptor.TYPE_ENUM:
                assert field.enum_type is not None
                return {"enum": [each.name for each in field.enum_type.values]}
        assert field.message_type is not None
        if _is_map(field):
            value = field.message_type.fields_by_name["value"]
            return {
                "type": "object",
                "additionalProperties": self._value(value, is_sent=is_sent),
            }
        return self._reference(field.message_type, is_sent=is_sent)


def _is_required(field: Field) -> bool:
    return REQUIRED in field.GetOptions().Extensions[field_behavior]


def _is_map(field: Field) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_presence(choice: Any) -> bool:
    """Whether a choice is one of one field: how protobuf tells that it may be missing."""
    return len(choice.fields) == 1
