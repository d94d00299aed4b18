"""Markup of platforms: what a model writes in Markdown, as Telegram and Slack show it.

Owns: escaping, and the few marks that both have: code, code blocks, bold and links.
Invariant: no letter of the text is lost, and nothing in it is taken for a mark of the platform that was not one.
"""

import re
from collections.abc import Callable

_BLOCK = re.compile(r"```([^\n`]*)\n(.*?)(?:\n```|\Z)", re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_LINK = re.compile(r"\[([^\]\n]+)\]\((https?://[^\s)]+)\)")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#-]{1,20}")


def telegram_html(text: str) -> str:
    """Returns the HTML that Telegram's parse mode takes."""

    def block(found: re.Match[str]) -> str:
        language = found[1].strip()
        code = escape_html(found[2])
        if _LANGUAGE.fullmatch(language):
            return f'<pre><code class="language-{language}">{code}</code></pre>'
        return f"<pre>{code}</pre>"

    def plain(piece: str) -> str:
        return _outside_code(piece, lambda code: f"<code>{escape_html(code)}</code>", _telegram_marks)

    return _by_blocks(text, block, plain)


def slack_mrkdwn(text: str) -> str:
    def block(found: re.Match[str]) -> str:
        return f"```\n{escape_slack(found[2])}\n```"

    def plain(piece: str) -> str:
        return _outside_code(piece, lambda code: f"`{escape_slack(code)}`", _slack_marks)

    return _by_blocks(text, block, plain)


def escape_html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _telegram_marks(text: str) -> str:
    marked = _LINK.sub(lambda found: f'<a href="{found[2]}">{found[1]}</a>', escape_html(text))
    return _BOLD.sub(r"<b>\1</b>", marked)


def _slack_marks(text: str) -> str:
    marked = _LINK.sub(lambda found: f"<{found[2]}|{found[1].replace('|', '¦')}>", escape_slack(text))
    return _BOLD.sub(r"*\1*", marked)


def _by_blocks(text: str, block: Callable[[re.Match[str]], str], plain: Callable[[str], str]) -> str:
    pieces, end = [], 0
    for found in _BLOCK.finditer(text):
        pieces += [plain(text[end : found.start()]), block(found)]
        end = found.end()
    return "".join([*pieces, plain(text[end:])])


def _outside_code(text: str, code: Callable[[str], str], marks: Callable[[str], str]) -> str:
    pieces, end = [], 0
    for found in _CODE.finditer(text):
        pieces += [marks(text[end : found.start()]), code(found[1])]
        end = found.end()
    return "".join([*pieces, marks(text[end:])])
