"""Finds secrets that are recognised by a vendor's name or a user flag before them.

Does not own: values that have a name (assignments).
"""

import re
from collections.abc import Iterator

from palyra.core.redaction.spans import Reading, Span
from palyra.core.redaction.values import Look, is_placeholder, look_of

_VENDOR_LOOK_BACK_CHARS = 48

# Vendors whose keys have no prefix. Vendors whose name often stands before a commit or a checksum are left out.
_VENDORS = (
    "adafruit|adobe|airtable|algolia|alibaba|asana|atlassian|confluence|jira|azure|beamer|bitbucket|bittrex|cloudflare|codecov"
    "|cohere|coinbase|confluent|contentful|databricks|datadog|discord|doppler|drone(?:ci)?|dropbox|dynatrace|etsy|facebook|fastly"
    "|finicity|finnhub|flickr|freshbooks|gitter|grafana|harness|heroku|hubspot|huggingface|intercom|artifactory|jfrog|bintray|xray"
    "|kraken|kucoin|launchdarkly|linkedin|looker|mailchimp|mailgun|mapbox|mattermost|maxmind|meraki|messagebird|netlify|newrelic"
    "|new_relic|nytimes|okta|openai|paypal|pagerduty|plaid|postman|rapidapi|sendbird|sendgrid|sendinblue|sentry|shopify|slack|snyk"
    "|sonar(?:qube)?|sourcegraph|splunk|square|stripe|sumologic|telegram|travis|trello|twilio|twitch|twitter|typeform|yandex|zendesk"
)
_VENDOR_BEFORE = re.compile(
    rf"(?<![a-z])(?:{_VENDORS})\w{{0,16}}[\"']?\s{{0,3}}[:=,>]{{0,3}}\s{{0,3}}[\"']?\Z", re.IGNORECASE
)
_OPAQUE = re.compile(r"(?<![\w/+.=›\-])(?=[A-Za-z_\-]{0,40}[0-9])[A-Za-z0-9_\-]{20,128}(?![\w/+.‹])")
_USER = re.compile(r"(?:-u|--user|--proxy-user)(?:=|\s{1,8}|\Z)")
_USER_VALUE = re.compile(r"(?P<quote>[\"']?)[^\s:\"'‹›]{0,80}:(?P<value>[\"']?[^\s\"'‹›]{1,160})[\"']?")
_HTTP_CLIENT = re.compile(r"\b(?:curl|wget|http|httpie)\b")


def find_vendor_keys(text: str, start: int, end: int, floor: int) -> Iterator[Span]:
    """Yields long random words right behind the name of a vendor: `vendor: 0f1e…`."""
    for match in _OPAQUE.finditer(text, start, end):
        low = max(floor, match.start() - _VENDOR_LOOK_BACK_CHARS)
        if look_of(match.group()) is Look.STRONG and _VENDOR_BEFORE.search(text, low, match.start()):
            yield Span(match.start(), match.end(), "api_key")


def read_user_flag(text: str, start: int, floor: int, end: int) -> Reading:
    """Reads `-u name:password`, as HTTP clients take it.

    In other programs `-u` often means a user and a group, which are plain words.
    """
    flag = _USER.match(text, start, end)
    if flag is None:
        return Reading(start + 2)
    if flag.end() == end:
        return Reading(start + 2, is_open=True)
    match = _USER_VALUE.match(text, flag.end(), end)
    if match is None:
        return Reading(flag.end())
    value = match["value"]
    look = look_of(value.strip("\"'"))
    is_client = _HTTP_CLIENT.search(text, floor, start) is not None
    if is_placeholder(value) or look < (Look.WORD if is_client else Look.MIXED):
        return Reading(flag.end())
    return Reading(match.end(), Span(match.start("value"), match.end("value"), "password"))
