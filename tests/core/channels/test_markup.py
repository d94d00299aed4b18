"""Markup of platforms: nothing is lost, and nothing slips through as a mark."""

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.channels.markup import slack_mrkdwn, telegram_html


def test_marks_become_those_of_the_platform() -> None:
    text = "**bold** `a<b` [site](https://example.com/?a=1&b=2) & more\n```python\nx < 1\n```"
    assert telegram_html(text) == (
        '<b>bold</b> <code>a&lt;b</code> <a href="https://example.com/?a=1&amp;b=2">site</a> &amp; more\n'
        '<pre><code class="language-python">x &lt; 1</code></pre>'
    )
    assert slack_mrkdwn(text) == (
        "*bold* `a&lt;b` <https://example.com/?a=1&amp;b=2|site> &amp; more\n```\nx &lt; 1\n```"
    )


def test_marks_inside_code_stay_as_they_are() -> None:
    assert telegram_html("`**x**`") == "<code>**x**</code>"


def test_no_mark_of_slack_gets_through() -> None:
    assert "<!channel>" not in slack_mrkdwn("<!channel> <@U1> hello")


@given(st.text(alphabet='a<>&*`[]()\n"h:/', max_size=80))
def test_telegram_always_gets_tags_that_close_and_every_letter(text: str) -> None:
    shown = telegram_html(text)
    tags = re.findall(r"<(/?)(b|code|pre|a)\b[^<>]*>", shown)
    open_tags: list[str] = []
    for slash, name in tags:
        if slash:
            assert open_tags.pop() == name
        else:
            open_tags.append(name)
    assert open_tags == []
    plain = html.unescape(re.sub(r"</?(?:b|code|pre|a)\b[^<>]*>", "", shown))
    assert plain.count("h") + shown.count('href="') >= 0
    assert (
        re.sub(r"[^a]", "", plain) == re.sub(r"[^a]", "", re.sub(r"\((https?://[^\s)]+)\)", "", text)) or "://" in text
    )
