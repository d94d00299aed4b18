"""Readable text: what of a page is kept, what nobody sees is dropped, and a hostile page costs no more than its length."""

import html
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.pages.readable import PAGE_LENGTH_MAX, TEXT_LENGTH_MAX, make_readable
from palyra.core.spelling import strip_unseen

ADDRESS = "https://ex.org/a/b"


def read(page: str) -> str:
    return make_readable(page, ADDRESS).text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<h2>A</h2><p>b<p>c", "## A\n\nb\n\nc"),
        ("a<br>b<hr>c", "a\nb\n\n---\n\nc"),
        ("<ul><li>a<li> b <ul><li>c</ul><li><p>d</p></ul>e", "- a\n- b\n  - c\n- d\n\ne"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ("x <a href='/y?z=1&amp;q=2'> y </a>z", "x [y](https://ex.org/y?z=1&q=2) z"),
        ("<a href=#top>top</a> <a href=javascript:x()>js</a> <a>none</a>", "top js none"),
        ("<a href='x y)('>t</a>", "[t](https://ex.org/a/x%20y%29%28)"),
        ("<base href='https://cdn.org/d/'><a href=e>t</a>", "[t](https://cdn.org/d/e)"),
        ("<a href=//o.org>o</a>", "[o](https://o.org)"),
        ("<pre>a\n  b</pre>c <code>d</code>", "```\na\n  b\n```\n\nc `d`"),
        ("<table><tr><th>a<th>b<tr><td>1</td><td><p>2</p></td></tr></table>c", "a | b\n1 | 2\n\nc"),
        ("<img alt='a cat' src=x><img src=y>", "[image: a cat]"),
        ("&lt;b&gt; &amp; &#x41;", "<b> & A"),
        ("1 < 2 and a<b>c</b>", "1 < 2 and ac"),
        ("<p title='>'>x", "x"),
        ("a  \n\t b", "a b"),
    ],
)
def test_page_keeps_its_form(page: str, text: str) -> None:
    assert read(page) == text


@pytest.mark.parametrize(
    "hidden",
    [
        "<script>HIDDEN</script>",
        "<SCRIPT type=x>'<p>HIDDEN'</SCRIPT >",
        "<style>HIDDEN</style>",
        "<noscript>HIDDEN</noscript>",
        "<template><template></template><p>HIDDEN</p></template>",
        "<textarea>HIDDEN</textarea>",
        "<!-- HIDDEN -->",
        "<!-- > HIDDEN --!>",
        "<!HIDDEN>",
        "<?HIDDEN?>",
        "<div hidden>HIDDEN<div>HIDDEN</div>HIDDEN</div>",
        "<div aria-hidden=true>HIDDEN</div>",
        "<p style='display:none'>HIDDEN</p>",
        "<p style='color:red; DISPLAY : none !important'>HIDDEN</p>",
        "<p style='dis/**/play:/* x */none'>HIDDEN</p>",
        "<p style='d\\69splay:none'>HIDDEN</p>",
        "<p style='&#100;isplay:none'>HIDDEN</p>",
        "<p style=visibility:hidden>HIDDEN</p>",
        "<p style='opacity:0.0'>HIDDEN</p>",
        "<p style='font-size:0px'>HIDDEN</p>",
        "<p style='position:absolute;left:-9999px'>HIDDEN</p>",
        "<p style='text-indent:-1000em'>HIDDEN</p>",
        "<span class='x sr-only'>HIDDEN</span>",
        "<nav>HIDDEN</nav>",
        "<footer>HIDDEN</footer>",
        "<div role=navigation>HIDDEN</div>",
        "<svg><title>HIDDEN</title><text>HIDDEN</text></svg>",
        "<select><option>HIDDEN</select>",
        "<ul><li hidden>HIDDEN<ul><li>HIDDEN</ul>HIDDEN<li>.</ul>",
        "<table><tr><td hidden>HIDDEN<td>.</table>",
        "<p hidden>HIDDEN<div>.</div>",
    ],
)
def test_what_nobody_sees_is_dropped_and_what_follows_is_not(hidden: str) -> None:
    text = read(f"<p>before</p>{hidden}<p>after</p>")
    assert "HIDDEN" not in text
    assert text.startswith("before")
    assert text.endswith("after")


@pytest.mark.parametrize("open_end", ["<!-- ", "<script>", "<p title='", "<p ", "<div hidden>", '<a href="x'])
def test_what_is_left_open_at_the_end_hides_the_rest_as_in_a_browser(open_end: str) -> None:
    assert read(f"<p>before</p>{open_end}HIDDEN") == "before"


@pytest.mark.parametrize(
    "style", ["opacity:0.5", "font-size:10px", "width:100%", "background-color:transparent", "left:-5px"]
)
def test_ordinary_styles_hide_nothing(style: str) -> None:
    assert read(f"<p style='{style}'>shown</p>") == "shown"


def test_title_is_given_apart_and_once() -> None:
    page = make_readable("<title> A &amp;\n B </title><svg><title>no</title></svg><title>C</title>x", ADDRESS)
    assert (page.title, page.text) == ("A & B", "x")


def test_characters_without_a_shape_are_dropped() -> None:
    assert strip_unseen("a\u200bb\u2066c\ufeffd\U000e0041e\xadf\ufe0fg\x07h\r\ni") == "abcdefgh\ni"


@pytest.mark.parametrize(
    "unit",
    [
        "<div>",
        "<p hidden>",
        "<ul><li>",
        "<a href=x>y",
        "<b a=1>",
        "<!--",
        "<p a='",
        "<",
        "&#",
        "<pre><code>",
        "x ",
        "<table><tr><td>",
    ],
)
def test_hostile_page_is_bounded(unit: str) -> None:
    """Trees of such pages cost the square of their length; here every one is read in one pass."""
    page = make_readable(unit * (PAGE_LENGTH_MAX // 4 // len(unit)), ADDRESS)
    assert len(page.text) <= TEXT_LENGTH_MAX


def test_one_tag_with_a_hundred_thousand_attributes_is_one_tag() -> None:
    assert read(f"<p {' '.join(f'a{n}=1' for n in range(100_000))}>x") == "x"


@pytest.mark.parametrize(("size", "is_cut"), [(TEXT_LENGTH_MAX, False), (TEXT_LENGTH_MAX + 1, True)])
def test_text_is_cut_at_the_limit(size: int, is_cut: bool) -> None:
    page = make_readable("x" * size, ADDRESS)
    assert (len(page.text), page.is_cut) == (TEXT_LENGTH_MAX, is_cut)


def test_stopped_reading_ends() -> None:
    assert make_readable("<p>x" * 10, ADDRESS, lambda: True).text == ""


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["<p>", "</p>", "<ul>", "<li>", "</ul>", "<a href='", "'>", "</a>", "<pre>", "</pre>", "<td hidden>"]
            ),
            st.sampled_from(
                ["<!--", "-->", "<script>", "</script>", "<tr>", "</table>", "&#", "&amp;", "<base href=x>", "=", '"']
            ),
            st.text(max_size=8),
            st.text(alphabet=string.punctuation + "\x00\ud800 9", max_size=8),
        ),
        max_size=30,
    ).map("".join)
)
def test_any_page_comes_to_text(page: str) -> None:
    text = read(page)
    assert text == strip_unseen(text)


@given(st.text(alphabet=string.ascii_letters + " <>&\"'", max_size=100))
def test_escaped_text_comes_out_as_it_was(text: str) -> None:
    assert read(f"<p>{html.escape(text)}</p>") == " ".join(text.split())


def test_number_of_a_character_with_thousands_of_digits_is_text() -> None:
    assert read(f"a&#{'9' * 5000};b").startswith("a")
