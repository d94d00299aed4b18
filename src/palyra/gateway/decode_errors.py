"""A decoder's error in plain words: which field, what is wrong with it, and what to do.

Does not own: decoding (http.request_reader, grpc.messages, mcp.tools), what a field means (gateway.routes).
Invariant: the words have a bounded length, because an error may quote what was sent.
"""

import re

import msgspec

WORDS_LENGTH_MAX = 200
_KINDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_PLACE = re.compile(r"(?P<what>.*) - at (?P<key>`key` in )?`\$\.?(?P<field>.*)`", re.DOTALL)
_LENGTH = re.compile(r"Expected `(?P<kind>\w+)` of length (?P<sign>[<>]=) (?P<count>\d+)")
_BOUND = re.compile(r"Expected `\w+` (?P<sign>[<>]=?) (?P<bound>\S+)")
_KIND = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`")
_MEMBER = re.compile(r"Object (?P<fault>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_FORM = re.compile(r"Expected `str` matching regex '(?P<form>.*)'")
_CHOICE = re.compile(r"Invalid enum value (?P<value>.*)", re.DOTALL)
_ULID_LETTERS = "[0-9A-HJKMNP-TV-Z]"
_HEX = re.compile(r"\^?\[0-9a-f\]\{(\d+)\}\$?")


def decode_error_words(cause: Exception, noun: str) -> str:
    """Returns the words. `noun` is what was decoded, such as `the body`: it is named where no field is."""
    text = _words(str(cause), noun) if isinstance(cause, msgspec.ValidationError) else f"{noun} is not valid: {cause}"
    return text if len(text) <= WORDS_LENGTH_MAX else f"{text[:WORDS_LENGTH_MAX]}…"


def _words(text: str, noun: str) -> str:
    place = _PLACE.fullmatch(text)
    what = place["what"] if place is not None else text
    field = place["field"] if place is not None else ""
    name = (f"a name in {field}" if place is not None and place["key"] else field) or noun
    if length := _LENGTH.fullmatch(what):
        return f"{name} {_length_words(length)}"
    if bound := _BOUND.fullmatch(what):
        return f"{name} must be {_BOUNDS[bound['sign']]} {bound['bound']}"
    if kind := _KIND.fullmatch(what):
        return f"{name} must be {_kinds(kind['wanted'])}, not {_kinds(kind['got'])}"
    if member := _MEMBER.fullmatch(what):
        full = f"{field}.{member['name']}" if field else member["name"]
        is_missing = member["fault"].startswith("missing")
        return f"{full} is missing; add it" if is_missing else f"{full} is not a field of {noun}; leave it out"
    if form := _FORM.fullmatch(what):
        return f"{name} must {_form_words(form['form'])}"
    if choice := _CHOICE.fullmatch(what):
        return f"{name} cannot be {choice['value']}"
    return f"{name} does not fit: {what[:1].lower()}{what[1:]}"


def _length_words(length: re.Match[str]) -> str:
    count, unit = int(length["count"]), "character" if length["kind"] == "str" else "item"
    if length["sign"] == ">=" and count == 1:
        return f"is empty; it needs at least one {unit}"
    is_short, several = length["sign"] == ">=", f"{count} {unit}{'' if count == 1 else 's'}"
    return f"is too {'short' if is_short else 'long'}; it must have {'at least' if is_short else 'at most'} {several}"


def _kinds(names: str) -> str:
    return " or ".join(_KINDS.get(each, each) for each in names.split(" | "))


def _form_words(form: str) -> str:
    if digits := _HEX.fullmatch(form):
        return f"have {digits[1]} characters, each 0-9 or a-f"
    is_id = _ULID_LETTERS in form
    return "be a whole id: 26 characters, digits and capital letters" if is_id else f"match the pattern {form}"
