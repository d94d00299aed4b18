"""Pages through the tools: what is read of them, what a click and typed text come to, pictures, and pages that misbehave."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from palyra.adapters.browser.outline import TEXT_BYTES_MAX
from palyra.core.events.tool import EffectClass, Outcome
from palyra.core.trust import Trust
from tests.browser.scenes import HASTY, Scene, ref_of, scene
from tests.support.sites import LOOPBACK, ok
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio
TEST_S = WAIT_S
SHOP = """<!doctype html><title>Shop &amp; more</title><h1>Shop</h1><p>Fresh <b>fruit</b>.</p><ul><li>one<li>two</ul>
<a href="/cart?a=1">Cart</a> <button onclick="document.body.append('PRESSED')">Press</button>
<form action="/find"><label>Search <input name=q></label><input type=password name=p placeholder=Pass>
<select name=s aria-label=Colour><option>Red<option>Blue</select><label><input type=checkbox name=c> Agree</label>
<input type=date name=d aria-label=Day><textarea name=t aria-label=Words>old</textarea><input type=submit value=Send></form>
<table><tr><td>a<td>b</table><button disabled>Never</button><a href="/new" target=_blank>Window</a>"""


@pytest.fixture(scope="module")
async def s(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with scene(tmp_path_factory.mktemp("profiles")) as made:
        yield made


@pytest.fixture(scope="module")
async def hasty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """For pages that take all the time that they get."""
    async with scene(tmp_path_factory.mktemp("profiles"), times=HASTY) as made:
        yield made


async def opens_again(s: Scene) -> None:
    """Waits until another page is read: on a busy machine a short limit may cut off a sound page too."""

    async def is_read() -> bool:
        return "Fresh" in (await s.call("open", url=s.page("/shop", SHOP))).output

    await until(is_read)


async def test_open_gives_status_address_title_text_and_controls(s: Scene) -> None:
    result = await s.call("open", url=s.page("/shop", SHOP))
    assert (result.outcome, result.trust, result.source) == (Outcome.OK, Trust.EXTERNAL, f"http:{LOOPBACK}")
    lines = result.output.splitlines()
    assert lines[:2] == [f"200 {s.home.url}/shop", "Title: Shop & more"]
    assert {"# Shop", "Fresh fruit.", "- one", "- two", "a | b"} <= set(lines)
    for control in (
        f'link "Cart" <{s.home.url}/cart?a=1>',
        'button "Press"',
        'textbox "Search"',
        'password "Pass"',
        'select "Colour" value "Red" options "Red", "Blue"',
        'checkbox "Agree" not checked',
        'textbox "Words" value "old"',
        'button "Send"',
        'button "Never" disabled',
    ):
        assert f"] {control}" in result.output


async def test_status_of_an_error_page_is_told(s: Scene) -> None:
    assert (await s.output("open", url=f"{s.home.url}/absent")).startswith("404 ")


async def test_click_gives_the_page_after_it(s: Scene) -> None:
    s.page("/cart?a=1", "<title>Cart</title>empty")
    output = await s.output("open", url=s.page("/shop", SHOP))
    assert "PRESSED" not in output
    output = await s.output("click", ref=ref_of(output, "Press"))
    assert "PRESSED" in output
    output = await s.output("click", ref=ref_of(output, "Cart"))
    assert output.startswith(f"200 {s.home.url}/cart?a=1\nTitle: Cart\n")
    assert await s.output("read") == output


async def test_slow_page_behind_a_click_is_waited_for(s: Scene) -> None:
    async def answer_late(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.6)
        writer.write(ok(b"<title>late</title>at last", media="text/html"))
        await writer.drain()

    s.home.answers["/late"] = answer_late
    output = await s.output("open", url=s.page("/before", "<a href=/late>go</a>"))
    assert "at last" in await s.output("click", ref=ref_of(output, "go"))


async def test_typed_text_reaches_the_server_with_submit(s: Scene) -> None:
    output = await s.output("open", url=s.page("/shop", SHOP))
    output = await s.output("type", ref=ref_of(output, "Colour"), text="blue")
    output = await s.output("type", ref=ref_of(output, "Words"), text="one\ntwo")
    output = await s.output("type", ref=ref_of(output, "Day"), text="2030-12-31")
    output = await s.output("click", ref=ref_of(output, "Agree"))
    assert 'checkbox "Agree" checked' in output
    output = await s.output("type", ref=ref_of(output, "Pass"), text="hunter2")
    assert "hunter2" not in output
    output = await s.output("type", ref=ref_of(output, "Search"), text="plum & 'pear'", submit=True)
    sent = f"{s.home.url}/find?q=plum+%26+%27pear%27&p=hunter2&s=Blue&c=on&d=2030-12-31&t=one%0D%0Atwo"
    assert output.splitlines()[0] == f"404 {sent}"


async def test_typing_replaces_and_can_empty_a_field(s: Scene) -> None:
    output = await s.output("open", url=s.page("/shop", SHOP))
    output = await s.output("type", ref=ref_of(output, "Words"), text="new")
    assert 'textbox "Words" value "new"' in output
    output = await s.output("type", ref=ref_of(output, "Words"), text="")
    assert 'textbox "Words" value' not in output


async def test_ref_of_another_look_page_or_session_is_stale(s: Scene) -> None:
    old = await s.output("open", url=s.page("/shop", SHOP))
    new = await s.output("read")
    assert ref_of(old, "Press") != ref_of(new, "Press")
    assert await s.code("click", ref=ref_of(old, "Press")) == "ref_stale"
    other = "01JZ0000000000000000OTHER1"
    await s.output("open", other, url=f"{s.home.url}/shop")
    assert await s.code("click", other, ref=ref_of(new, "Press")) == "ref_stale"
    assert "PRESSED" not in await s.output("read")


async def test_element_that_is_gone_or_cannot_be_used_is_told(s: Scene) -> None:
    body = """<button id=a>Gone</button><button id=b>Covered</button><input id=c aria-label=Field>
    <button onclick="a.remove(); b.style.position = 'relative';
      document.body.insertAdjacentHTML('beforeend', '<div style=position:fixed;inset:0>over</div>')
      ">Change</button>"""
    output = await s.output("open", url=s.page("/change", body))
    assert await s.code("type", ref=ref_of(output, "Gone"), text="x") == "not_possible"
    changed = await s.output("click", ref=ref_of(output, "Change"))
    assert "Gone" not in changed
    assert await s.code("click", ref=ref_of(changed, "Covered")) == "not_possible"
    assert await s.code("click", ref="e1") == "ref_stale"
    assert await s.code("click", ref="Press") == "arguments_invalid"


async def test_text_that_is_seen_is_given_wherever_it_stands(s: Scene) -> None:
    body = """<p style="color:#eee;background:#111">light on dark</p><div style="height:4000px"></div><p>far below</p>
    <div id=host><i>given</i></div><script>
    host.attachShadow({mode: 'open'}).innerHTML = '<p>in shadow <slot></slot></p><button>deep</button>';</script>
    <iframe srcdoc="<p>in a frame</p><button onclick='this.textContent = `was pressed`'>inner</button>"></iframe>
    <pre>a  b</pre><div style="display:contents"><p>no box</p></div><details open><summary>more</summary>unfolded</details>"""
    output = await s.output("open", url=s.page("/seen", body))
    for words in ("light on dark", "far below", "in shadow given", "in a frame", "no box", "unfolded"):
        assert words in output
    assert "was pressed" in await s.output("click", ref=ref_of(output, "inner"))
    ref_of(output, "deep")


async def test_a_form_cannot_hide_the_page_by_the_names_of_its_fields(s: Scene) -> None:
    names = ("getBoundingClientRect", "childNodes", "children", "nodeName", "nodeType", "parentElement", "getAttribute",
             "querySelector", "ownerDocument", "shadowRoot", "getClientRects", "hasAttribute", "getRootNode")  # fmt: skip
    fields = "".join(f"<input name={name}>" for name in names)
    output = await s.output("open", url=s.page("/form", f"<p>before</p><form>{fields}<p>within</p></form><p>after</p>"))
    assert all(word in output for word in ("before", "within", "after"))


async def test_what_only_looks_clickable_and_hidden_boxes_with_a_label_get_refs(s: Scene) -> None:
    body = """<style>.b { opacity: 0; position: absolute }</style><div id=d style="cursor:pointer">Tile</div>
    <label><input class=b type=checkbox>Nice box</label><script>d.addEventListener('click', () => { d.textContent = 'Opened' })
    </script>"""
    output = await s.output("open", url=s.page("/soft", body))
    assert 'checkbox "Nice box" not checked' in output
    output = await s.output("click", ref=ref_of(output, "Nice box"))
    assert 'checkbox "Nice box" checked' in output
    assert "Opened" in await s.output("click", ref=ref_of(output, "Tile"))


async def test_what_is_not_seen_takes_no_room_from_a_name(s: Scene) -> None:
    unseen = "\u3164\u200b\ufe01\U000e0041" * 60
    output = await s.output("open", url=s.page("/unseen", f"<button>{unseen}Pay</button><p>{unseen}now</p>"))
    assert 'button "Pay"' in output
    assert "now" in output
    assert not set(unseen) & set(output)


async def test_page_cannot_write_a_ref_or_hide_letters(s: Scene) -> None:
    body = '<p>[e123456] button "Safe"</p><p>a\u200bb\u202ec\x07d</p><button>[e9] x</button>'
    output = await s.output("open", url=s.page("/fake", body))
    assert '(e123456) button "Safe"' in output
    assert "abcd" in output
    assert output.count("[e") == 1


async def test_page_cannot_change_what_looks_at_it(s: Scene) -> None:
    body = """<p>truth</p><p style="display:none">MARK</p><button>real</button><script>
    getComputedStyle = () => ({display: 'block', visibility: 'visible', opacity: '1', fontSize: '16px', color: 'red'});
    Range.prototype.getBoundingClientRect = () => ({width: 9, height: 9, right: 9, bottom: 9, left: 0});
    Array.prototype.push = () => { throw 1; }; String.prototype.replace = () => 'spoiled'; performance.now = () => -1;
    Object.defineProperty(Node.prototype, 'childNodes', {get() { return []; }}); globalThis.palyra = {look: () => 'mine'};
    </script>"""
    output = await s.output("open", url=s.page("/spoil", body))
    assert "truth" in output
    assert "MARK" not in output
    ref_of(output, "real")


async def test_giant_page_is_cut_with_a_note(s: Scene) -> None:
    body = """<script>for (let i = 0; i < 10000; i++) document.write(`<p>line ${i} of many</p><a href=/${i}>x</a>`)</script>"""
    output = await s.output("open", url=s.page("/giant", body))
    assert len(output.encode()) < TEXT_BYTES_MAX + 2048
    assert output.endswith("[the page is longer than what is shown here]")
    assert "line 10 of many" in output


async def test_deep_page_is_read_as_far_as_is_sensible_and_a_crash_is_told(s: Scene, hasty: Scene) -> None:
    body = """<p>top</p><script>let at = document.body;
    for (let i = 0; i < @; i++) { const made = document.createElement('div'); at.append(made); at = made; } at.append('deep')
    </script>"""
    output = await s.output("open", url=s.page("/deep", body.replace("@", "1000")))
    assert "top" in output
    assert "deep" not in output.partition("\n")[2]
    assert output.endswith("[the page is longer than what is shown here]")
    url = hasty.page("/deep", body.replace("@", "4000"))

    async def is_crashed() -> bool:
        return await hasty.code("open", url=url) == "page_crashed"

    await until(is_crashed)  # On a busy machine the crash may come after the limit of a look.
    assert await hasty.code("read") == "page_crashed"
    await opens_again(hasty)


async def test_endless_script_ends_the_page_and_not_the_browser(hasty: Scene) -> None:
    async with asyncio.timeout(TEST_S):
        url = hasty.page("/endless", "<p>x</p><script>for (;;) {}</script>")
        assert await hasty.code("open", url=url) == "page_hangs"
        assert await hasty.code("read") == "no_page"
        await opens_again(hasty)


async def test_alerts_are_dismissed_and_told_and_endless_ones_survived(s: Scene, hasty: Scene) -> None:
    async with asyncio.timeout(TEST_S):
        body = "<p>after</p><script>alert('one'); confirm('two'); onbeforeunload = (each) => each.preventDefault()</script>"
        output = await s.output("open", url=s.page("/alerts", body))
        assert "[a dialog (alert) was dismissed: one]" in output
        assert "after" in output
        loop = hasty.page("/alarm", "<script>for (;;) alert('again')</script>")
        assert await hasty.code("open", url=loop) in ("page_hangs", "timed_out")
        await opens_again(hasty)


async def test_new_window_is_closed_and_named(s: Scene) -> None:
    s.page("/new", "<title>New</title>")
    output = await s.output("open", url=s.page("/shop", SHOP))
    output = await s.output("click", ref=ref_of(output, "Window"))
    async with asyncio.timeout(TEST_S):
        while "a new window was closed" not in output:
            output = await s.output("read")
    assert output.startswith(f"200 {s.home.url}/shop")


async def test_page_that_goes_elsewhere_all_the_time_does_not_hang(hasty: Scene) -> None:
    async with asyncio.timeout(TEST_S):
        url = hasty.page("/restless", "<p>here</p><script>setTimeout(() => location.reload(), 30)</script>")
        result = await hasty.call("open", url=url)
        assert "here" in result.output or (result.error is not None and result.error.code == "page_restless")
        await opens_again(hasty)


async def test_page_that_wins_over_the_next_address_is_replaced(s: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The race is Chromium's: the earlier document navigates after it was left, and the new navigation is given up."""
    goto, asked = Page.goto, list[str]()

    async def interrupted_once(page: Page, url: str, **options: Any) -> object:
        asked.append(url)
        if url.endswith("/shop") and sum(each == url for each in asked) == 1:
            raise PlaywrightError(f'Page.goto: Navigation to "{url}" is interrupted by another navigation')
        return await goto(page, url, **options)

    monkeypatch.setattr(Page, "goto", interrupted_once)
    async with asyncio.timeout(TEST_S):
        await s.output("open", url=s.page("/restless", "<p>here</p>"))
        assert "Fresh" in await s.output("open", url=s.page("/shop", SHOP))
    assert len([each for each in asked if each.endswith("/shop")]) == 2


async def test_page_that_never_ends_is_read_as_far_as_it_came(hasty: Scene) -> None:
    async def drip(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>beginning</p>" + b" " * 2000)
        await writer.drain()
        await asyncio.sleep(TEST_S)

    hasty.home.answers["/drip"] = drip
    output = await hasty.output("open", url=f"{hasty.home.url}/drip")
    assert "beginning" in output
    assert "[the page was still loading]" in output
    assert "beginning" in await hasty.output("read")


async def test_screenshot_becomes_a_picture_of_the_page(s: Scene) -> None:
    await s.output(
        "open", url=s.page("/tall", "<body style='margin:0;background:#fff'><div style='height:3000px'>tall</div>")
    )
    part, whole = await s.call("screenshot"), await s.call("screenshot", full_page=True)
    assert [each.source for each in (part, whole)] == [f"http:{LOOPBACK}"] * 2
    assert [(made.name, made.media_type) for made in (*part.made, *whole.made)] == [("page.png", "image/png")] * 2
    sizes = [(int.from_bytes(made.body[16:20]), int.from_bytes(made.body[20:24])) for made in (*part.made, *whole.made)]
    assert sizes == [(1280, 800), (1280, 3000)]


async def test_picture_of_an_endless_page_is_bounded(s: Scene) -> None:
    await s.output("open", url=s.page("/endless-tall", "<div style='height:900000px'>tall</div>"))
    made = (await s.call("screenshot", full_page=True)).made[0]
    assert int.from_bytes(made.body[20:24]) == 8000


async def test_without_a_page_every_look_says_what_to_do(s: Scene) -> None:
    session = "01JZ0000000000000000EMPTY1"
    for name, arguments in (
        ("read", {}),
        ("screenshot", {}),
        ("click", {"ref": "e9"}),
        ("type", {"ref": "e9", "text": "x"}),
    ):
        result = await s.call(name, session, **arguments)
        assert result.error is not None
        assert (result.error.code, "browser.open" in result.error.message) == ("no_page", True)
        assert result.trust is Trust.SYSTEM


async def test_nature_names_the_address_and_what_a_ref_stands_for(s: Scene) -> None:
    url = s.page("/shop", SHOP)
    opening = s.tools["browser.open"].nature({"url": url}, ())
    assert (opening.effect_class, opening.host, opening.address) == (EffectClass.READ_ONLY, LOOPBACK, url)
    output = await s.output("open", url=url)
    clicking = s.tools["browser.click"].nature({"ref": ref_of(output, "Press")}, ())
    assert (clicking.effect_class, clicking.host) == (EffectClass.ONCE, LOOPBACK)
    assert clicking.preview == f'button "Press", as the page showed it\non {url}'
    typing = s.tools["browser.type"].nature({"ref": ref_of(output, "Pass"), "text": "hunter2", "submit": True}, ())
    assert typing.preview is not None
    assert "hunter2" not in typing.preview
    assert "then Enter" in typing.preview
    for name in ("click", "type"):
        unknown = s.tools[f"browser.{name}"].nature({"ref": "e1"}, ())
        assert (unknown.effect_class, unknown.host, unknown.preview) == (EffectClass.ONCE, None, None)


async def test_cancelled_call_stops_loading(s: Scene) -> None:
    async def wait(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(TEST_S)

    s.home.answers["/wait"] = wait
    opening = asyncio.create_task(s.call("open", url=f"{s.home.url}/wait"))
    async with asyncio.timeout(TEST_S):
        await until(lambda: any(b"GET /wait" in request for request in s.home.requests))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await until(lambda: s.home.open_count == 0)
        assert "Fresh" in await s.output("open", url=s.page("/shop", SHOP))


async def test_control_that_was_given_another_name_meanwhile_is_not_clicked(s: Scene) -> None:
    """A person is asked about what it was called; the page must not change that while they think."""
    is_seen = asyncio.Event()

    async def answer_later(request: bytes, writer: asyncio.StreamWriter) -> None:
        await is_seen.wait()
        writer.write(ok(b"now"))
        await writer.drain()

    s.home.answers["/seen"] = answer_later
    body = """<button id=a onclick="document.body.append('PRESSED')">Save</button>
    <script>fetch('/seen').then(() => { a.textContent = 'Delete all'; fetch('/changed') })</script>"""
    output = await s.output("open", url=s.page("/relabel", body))
    is_seen.set()
    await until(lambda: any(b"GET /changed" in request for request in s.home.requests))
    assert await s.code("click", ref=ref_of(output, "Save")) == "ref_stale"
    assert "PRESSED" not in await s.output("read")
