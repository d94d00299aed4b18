"""The shapes of well-known keys and tokens, which are secrets whatever stands around them.

Does not own: values that have a name (assignments).
Each row is our own reading of a vendor's public description of its keys. It has a prefix that nothing else uses, then a
bounded run of random characters. Rows are tried in order at each word start, so a narrow shape goes before a wide one.
"""

import re
from collections.abc import Iterator

from palyra.core.redaction.spans import Span
from palyra.core.redaction.values import entropy_bits, has_random_part, is_placeholder

_ANY = r"[A-Za-z0-9_\-]"
_HEX = r"[0-9a-fA-F]"

_ROWS: tuple[tuple[str, str], ...] = (
    ("jwt", rf"eyJ{_ANY}{{6,2000}}\.eyJ{_ANY}{{6,4000}}(?:\.{_ANY}{{0,2000}})?"),
    ("jwt", r"ZXlK[A-Za-z0-9+/_\-]{60,4000}={0,2}"),
    ("aws_access_key", r"(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|A3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("aws_bedrock_key", r"ABSK[A-Za-z0-9+/]{80,300}={0,2}|bedrock-api-key-[A-Za-z0-9+/=]{20,2000}"),
    ("palyra_token", rf"palyra_{_ANY}{{20,128}}"),
    ("github_token", r"gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_\w{30,255}"),
    (
        "gitlab_token",
        rf"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct|wt)-{_ANY}{{20,255}}(?:\.[A-Za-z0-9_]{{2,16}}){{0,2}}",
    ),
    ("gitlab_token", rf"GR1348941{_ANY}{{18,64}}"),
    ("slack_token", rf"xox[a-z](?:\.xox[a-z])?-(?=[^\s\"']{{0,16}}\d){_ANY}{{8,512}}|xapp-\d-{_ANY}{{20,255}}"),
    ("slack_webhook", r"(?:https?://)?hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_\-]{30,255}"),
    ("discord_webhook", rf"(?:https?://)?(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d{{6,24}}/{_ANY}{{30,128}}"),
    ("teams_webhook", r"https://[\w.\-]{1,100}\.webhook\.office\.com/webhookb2/[\w@/\-]{40,255}"),
    ("stripe_key", r"(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,255}|whsec_[A-Za-z0-9+/=]{24,128}"),
    ("google_key", rf"AIza{_ANY}{{35}}|GOCSPX-{_ANY}{{24,40}}|ya29\.{_ANY}{{20,2000}}|1//0{_ANY}{{30,255}}"),
    ("openai_key", rf"sk-(?:proj|svcacct|admin|service|None)-{_ANY}{{20,255}}"),
    ("anthropic_key", rf"sk-ant-{_ANY}{{20,255}}"),
    ("openai_key", rf"sk-(?:or-v1-|lf-)?{_ANY}{{20,255}}"),
    ("model_provider_key", rf"(?:pplx-|gsk_|xai-|nvapi-|r8_|tgp_v1_|fw_|jina_|voyage-|pa-){_ANY}{{28,255}}"),
    ("huggingface_token", r"(?:hf_|api_org_)[A-Za-z0-9]{30,64}"),
    ("npm_token", r"npm_[A-Za-z0-9]{30,64}"),
    ("pypi_token", rf"pypi-Ag{_ANY}{{50,1000}}"),
    (
        "package_token",
        rf"rubygems_{_HEX}{{40,64}}|CLOJARS_[A-Za-z0-9]{{50,64}}|dckr_(?:pat|oat)_{_ANY}{{20,64}}|oy2[a-z0-9]{{43}}",
    ),
    (
        "artifactory_token",
        r"AKC[A-Za-z0-9]{10,128}|AP(?![0-9A-HJKMNP-TV-Z]{24}(?![A-Za-z0-9]))[0-9A-F](?=[A-Za-z0-9]{0,24}[0-9x])[A-Za-z0-9]{10,128}|cmVmd[A-Za-z0-9]{50,70}",
    ),
    ("sendgrid_key", rf"SG\.{_ANY}{{16,32}}\.{_ANY}{{32,64}}"),
    (
        "mail_key",
        rf"(?:key|pubkey)-{_HEX}{{32}}|{_HEX}{{32}}-us\d{{1,2}}|xkeysib-{_HEX}{{64}}-[A-Za-z0-9]{{16}}|{_HEX}{{32}}-{_HEX}{{8}}-{_HEX}{{8}}",
    ),
    ("twilio_key", rf"SK{_HEX}{{32}}"),
    ("square_token", rf"sq0[a-z]{{3}}-[^\s\"'`]{{22,64}}|EAAA{_ANY}{{56,64}}"),
    ("facebook_token", rf"EAA[A-Za-z0-9]{{80,300}}|\d{{15,16}}(?:\||%7C){_ANY}{{24,40}}"),
    ("shopify_token", rf"shp(?:at|ca|pa|ss|tka)_{_HEX}{{32}}"),
    ("telegram_token", rf"(?:bot)?\d{{6,16}}:A{_ANY}{{32,36}}(?![A-Za-z0-9_\-])"),
    ("discord_token", r"[MNO][A-Za-z0-9_\-]{23,26}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,40}"),
    ("age_key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    ("vault_token", rf"hv[sbr]\.{_ANY}{{20,300}}|s\.(?=[A-Za-z]{{0,20}}\d)[A-Za-z0-9]{{24}}(?![A-Za-z0-9.])"),
    ("terraform_token", rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_ANY}{{40,80}}"),
    (
        "cloud_token",
        rf"do[opr]_v1_{_HEX}{{64}}|dapi{_HEX}{{32}}(?:-\d)?|dt0[a-z]\d\d\.[A-Z0-9]{{20,28}}\.[A-Z0-9]{{60,68}}",
    ),
    (
        "cloud_token",
        rf"v1\.0-{_HEX}{{24}}-{_HEX}{{146}}|LTAI[A-Za-z0-9]{{16,24}}|HRKU-{_ANY}{{30,70}}|tskey-{_ANY}{{20,80}}",
    ),
    (
        "cloud_token",
        rf"pscale_(?:tkn|oauth|pw)_[\w=.\-]{{30,70}}|pul-{_HEX}{{40}}|sbp_{_HEX}{{40}}|AQVN{_ANY}{{34,40}}|y0_{_ANY}{{30,80}}",
    ),
    ("cloud_token", rf"t1\.[A-Za-z0-9_\-]{{10,300}}={{0,2}}\.{_ANY}{{80,100}}={{0,2}}"),
    (
        "fly_token",
        r"fo1_[A-Za-z0-9_\-]{40,64}|fm[12][ar]?_[A-Za-z0-9+/]{60,600}={0,3}(?:,fm[12][ar]?_[A-Za-z0-9+/]{60,600}={0,3}){0,8}",
    ),
    ("azure_secret", r"[A-Za-z0-9_~.\-]{3}\dQ~[A-Za-z0-9_~.\-]{31,34}(?![A-Za-z0-9_~.\-])"),
    ("openshift_token", rf"sha256~{_ANY}{{40,46}}"),
    ("doppler_token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.\-]{40,64}"),
    ("atlassian_token", rf"AT[AC]TT3[\w=\-]{{50,300}}|ATBB{_ANY}{{24,48}}"),
    (
        "onepassword_key",
        r"ops_eyJ[A-Za-z0-9+/]{200,4000}={0,3}|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}",
    ),
    ("easypost_key", r"EZ[AT]K[A-Za-z0-9]{54}(?![A-Za-z0-9])"),
    ("grafana_token", r"gl(?:c|sa)_[A-Za-z0-9+/_]{32,400}={0,3}|eyJrIjoi[A-Za-z0-9]{60,400}={0,3}"),
    ("sentry_token", r"sntrys_eyJ[A-Za-z0-9+/=_]{60,400}|sntry[a-z]_[0-9a-f]{64}"),
    ("notion_token", r"ntn_\d{8,14}[A-Za-z0-9]{30,40}|secret_[A-Za-z0-9]{43}"),
    ("new_relic_key", r"NR(?:AK|JS|II|AA|RA|BR)-[A-Za-z0-9\-]{16,48}"),
    ("octopus_key", r"API-(?=[A-Z]{0,24}\d)[A-Z0-9]{26}(?![A-Z0-9])"),
    ("sourcegraph_token", rf"(?:sgp|slk)_(?:(?:local|{_HEX}{{16}})_)?{_HEX}{{40,64}}(?![A-Za-z0-9])"),
    (
        "service_token",
        r"s-s4t2(?:ud|af)-[0-9a-f]{64}|PMAK-[0-9a-f]{24}-[0-9a-f]{34}|sq[apu]_[0-9a-f]{40}|rdme_[a-z0-9]{60,80}",
    ),
    (
        "service_token",
        r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}|(?:pat|sat)\.[A-Za-z0-9_\-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}",
    ),
    (
        "service_token",
        r"(?:live|test)_(?:pub_)?[0-9a-f]{31,40}|shippo_(?:live|test)_[0-9a-f]{40}|sm_[aps]at_[A-Za-z0-9]{16}(?![A-Za-z0-9])",
    ),
    (
        "service_token",
        r"FLW(?:SEC|PUB)K(?:_TEST)?-[0-9a-hA-H]{12,32}(?:-X)?|duffel_(?:test|live)_[\w=\-]{40,48}|dnkey-[\w=\-]{50,90}",
    ),
    (
        "service_token",
        r"fio-u-[\w=\-]{60,70}|tfp_[\w=.\-]{50,64}|pnu_[A-Za-z0-9]{36}|nfp_[A-Za-z0-9]{36,40}|ico-[A-Za-z0-9]{32}",
    ),
    (
        "service_token",
        r"(?:sdk|api|mob)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|tk-us-[\w\-]{48}|lin_(?:api|oauth)_[A-Za-z0-9]{40,64}",
    ),
    (
        "service_token",
        r"fig[dour]_[\w\-]{40,64}|CFPAT-[\w\-]{40,48}|bkua_[0-9a-f]{40}|CCIPAT_[A-Za-z0-9_]{40,80}|[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk",
    ),
    (
        "service_token",
        r"rnd_[A-Za-z0-9]{28,40}|secret-token:[\w\-.]{16,255}|p8e-[a-z0-9]{32}|pk_\d{6,9}_[A-Z0-9]{32}|xau[a-z]_[\w\-]{20,80}",
    ),
)

# A word start: the character before must not be part of the same word. The closing sign of a marker counts as part of
# it. So the text after a marker is judged the second time as it was the first time.
_WORD_START = r"(?<![A-Za-z0-9›])(?<![A-Za-z0-9][_\-])"
_FORMATS = re.compile(_WORD_START + "(?:" + "|".join(f"({pattern})" for _, pattern in _ROWS) + ")(?!‹)")
_TOKEN_SIGN = re.compile(r"[0-9]|hf_|api_org_|AKC|:/|:\\")  # Nothing below matches without one of these.
_KINDS = tuple(kind for kind, _ in _ROWS)
# Some real keys repeat one character in public examples; their prefix alone is proof enough.
_SURE_KINDS = frozenset(("age_key", "artifactory_token", "slack_webhook", "aws_bedrock_key"))

# Any vendor: a short lower-case prefix, then at least 24 characters of mixed case with digits.
_PREFIXED = re.compile(
    r"(?<![\w›\-/.+=])[a-z][a-z0-9]{1,11}(?:[_\-][a-z0-9]{1,8}){0,3}[_\-]([A-Za-z0-9]{24,128})(?![\w/+.=‹])"
)
_URL_CREDENTIALS = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]{1,20}:(?:\\?/){2}([^\s/:@\"'<>`\\‹›]{0,128})(?::([^\s/\"'<>`\\‹›]{1,256}))?@(?=[\w\[.\-$%{])"
)


def find_formats(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields every key of a known shape, every prefixed random token, and the passwords of URLs.

    Only the given part of the text is searched.
    """
    if _TOKEN_SIGN.search(text, start, end) is None:
        return
    for match in _FORMATS.finditer(text, start, end):
        kind = _KINDS[(match.lastindex or 1) - 1]
        if kind in _SURE_KINDS or not _is_stand_in(match.group()):
            yield Span(match.start(), match.end(), kind)
    for match in _PREFIXED.finditer(text, start, end):
        # A publishable key is meant to be seen.
        if not match.group().startswith("pk_") and _is_varied(match.group(1)):
            yield Span(match.start(), match.end(), "prefixed_token")
    if "@" in text[start:end]:
        yield from _find_url_credentials(text, start, end)


def _find_url_credentials(text: str, start: int, end: int) -> Iterator[Span]:
    for match in _URL_CREDENTIALS.finditer(text, start, end):
        user, password = match.group(1), match.group(2)
        if password and not is_placeholder(password):
            yield Span(match.start(2), match.end(2), "url_credentials")
        elif password is None and has_random_part(user, 16):
            yield Span(match.start(1), match.end(1), "url_credentials")


def _is_stand_in(token: str) -> bool:
    """Tells whether a key-shaped text was made by hand: the masks and samples of documentation."""
    lowered = token.lower()
    return "example" in lowered or "xxxx" in lowered or lowered.endswith("here") or entropy_bits(token) < 2.5


def _is_varied(text: str) -> bool:
    has_cases = text != text.lower() and text != text.upper()
    return has_cases and sum(map(str.isdigit, text)) >= 2 and has_random_part(text, 24)
