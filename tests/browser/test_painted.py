"""What a person sees of a page reaches the outline, and nothing else: many ways of hiding text, and of showing it."""

from collections.abc import AsyncIterator
from itertools import islice

import pytest

from tests.browser.scenes import Scene, ref_of, scene

pytestmark = pytest.mark.anyio
WAYS_COUNT = 24  # On one page: a slow machine too has the time for pictures of all of it.
TEXTURE = "repeating-linear-gradient(45deg,#000 0 3px,#fff 3px 6px)"

# Each is a whole way of its own; MARK is what nobody sees. Every way stands in a paragraph of its own on the page.
HIDDEN = {
    # Not laid out at all
    "display": "<p style='display:none'>MARK</p>",
    "hidden attribute": "<p hidden>MARK</p>",
    "hidden until found": "<p hidden=until-found>MARK</p>",
    "content-visibility": "<div style='content-visibility:hidden'>MARK</div>",
    "visibility": "<p style='visibility:hidden'>MARK</p>",
    "collapsed row": "<table><tr style='visibility:collapse'><td>MARK</td></tr></table>",
    "closed details": "<details><summary>more</summary>MARK</details>",
    "closed dialog": "<dialog>MARK</dialog>",
    "popover that is not open": "<div popover>MARK</div>",
    "comment": "<!-- MARK -->",
    "template": "<template>MARK</template>",
    "noscript": "<noscript>MARK</noscript>",
    "style": "<style>MARK</style>",
    "unused slot": "<div><template shadowrootmode=open>ok</template>MARK</div>",
    "print only": "<style>.pr{display:none} @media print{.pr{display:block}}</style><p class=pr>MARK</p>",
    "fallback of a canvas": "<canvas width=9 height=9>MARK</canvas>",
    "fallback of an object": "<object data='data:text/html,x'>MARK</object>",
    "option that is not listed": "<datalist><option>MARK</option></datalist>",
    "hidden field": "<input type=hidden name=MARK value=MARK>",
    "svg definition": "<svg width=90 height=20><defs><text y=15>MARK</text></defs></svg>",
    "svg title": "<svg width=90 height=20><title>MARK</title></svg>",
    # Ink
    "transparent": "<p style='color:transparent'>MARK</p>",
    "white": "<p style='color:#fff'>MARK</p>",
    "nearly white": "<p style='color:#fdfdfd'>MARK</p>",
    "hsl": "<p style='color:hsl(0 0% 100%)'>MARK</p>",
    "hwb": "<p style='color:hwb(0 100% 0%)'>MARK</p>",
    "lab": "<p style='color:lab(100% 0 0)'>MARK</p>",
    "lch": "<p style='color:lch(100% 0 0)'>MARK</p>",
    "oklab": "<p style='color:oklab(1 0 0)'>MARK</p>",
    "oklch": "<p style='color:oklch(1 0 0)'>MARK</p>",
    "display-p3": "<p style='color:color(display-p3 1 1 1)'>MARK</p>",
    "rec2020": "<p style='color:color(rec2020 1 1 1)'>MARK</p>",
    "xyz": "<p style='color:color(xyz .95 1 1.089)'>MARK</p>",
    "color-mix": "<p style='color:color-mix(in srgb, white 99%, black)'>MARK</p>",
    "relative colour": "<p style='color:rgb(from black 255 255 255)'>MARK</p>",
    "light-dark": "<p style='color:light-dark(white, black)'>MARK</p>",
    "system colour": "<p style='color:Canvas'>MARK</p>",
    "alpha in oklab": "<p style='color:oklab(0.2 0 0 / 0)'>MARK</p>",
    "little alpha": "<p style='color:rgb(0 0 0 / 2%)'>MARK</p>",
    "fill colour": "<p style='-webkit-text-fill-color:white'>MARK</p>",
    "black on black": "<p style='background:#000;color:#000'>MARK</p>",
    "white on a white picture": "<p style='background:linear-gradient(#fff,#fff);color:#fff'>MARK</p>",
    "black on a black sibling": "<div style='position:relative;height:24px'>"
    "<div style='position:absolute;inset:0;background:#000'>"
    "</div><p style='position:relative;margin:0'>MARK</p></div>",
    "white clip of the background": "<p style='background:#fff;background-clip:text;color:transparent'>MARK</p>",
    "white svg text": "<svg width=90 height=20><text y=15 fill=white>MARK</text></svg>",
    "svg text without fill": "<svg width=90 height=20><text y=15 fill=none>MARK</text></svg>",
    "svg text without opacity": "<svg width=90 height=20><text y=15 fill-opacity=0>MARK</text></svg>",
    "white on white letter of a line": "<style>.fl::first-line{color:#fff}</style><p class=fl>MARK</p>",
    # Effects
    "opacity": "<div style='opacity:0'><p>MARK</p></div>",
    "tiny opacity": "<p style='opacity:.01'>MARK</p>",
    "opacity of many": "<div style='opacity:.2'><div style='opacity:.2'><div style='opacity:.2'>MARK</div></div></div>",
    "opacity filter": "<p style='filter:opacity(0)'>MARK</p>",
    "brightness": "<p style='filter:brightness(100);background:#fff;color:#777'>MARK</p>",
    "contrast": "<p style='background:#fff;color:#ccc;filter:contrast(0)'>MARK</p>",
    "blur": "<p style='filter:blur(60px)'>MARK</p>",
    "svg filter": "<svg width=0 height=0><filter id=fz><feColorMatrix values='0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
    " 0'/></filter>"
    "</svg><p style='filter:url(#fz)'>MARK</p>",
    "mask": "<p style='-webkit-mask-image:linear-gradient(transparent,transparent)'>MARK</p>",
    "mask without size": "<p style='mask:linear-gradient(#000,#000) 0 0/0 0 no-repeat'>MARK</p>",
    "radial mask": "<p style='mask-image:radial-gradient(transparent,transparent)'>MARK</p>",
    "screen blend": "<div style='background:#fff;isolation:isolate'><p style='mix-blend-mode:screen'>MARK</p></div>",
    "lighten blend": "<div style='background:#fff'><p style='mix-blend-mode:lighten'>MARK</p></div>",
    "backdrop filter over it": "<div style='position:relative;background:#fff'>MARK"
    "<div style='position:absolute;inset:0;"
    "backdrop-filter:contrast(0)'></div></div>",
    "animation held at nothing": "<style>@keyframes gone{to{opacity:0}}</style>"
    "<p style='animation:gone 1s -1s both paused'>MARK</p>",
    # Shape and place
    "clip": "<span style='position:absolute;width:1px;height:1px;overflow:hidden;clip:rect(0,0,0,0)'>MARK</span>",
    "clip without size": "<span style='position:absolute;clip:rect(0,0,0,0)'>MARK</span>",
    "clip path inset": "<p style='clip-path:inset(100%)'>MARK</p>",
    "clip path in two halves": "<p style='clip-path:inset(0 50% 0 50%)'>MARK</p>",
    "clip path polygon": "<p style='clip-path:polygon(0 0,0 0,0 0)'>MARK</p>",
    "clip path circle": "<p style='clip-path:circle(1px at 900px 900px)'>MARK</p>",
    "clip path of a path": "<p style='clip-path:path(\"M0 0\")'>MARK</p>",
    "scaled to nothing": "<p style='transform:scale(0)'>MARK</p>",
    "scaled small": "<p style='transform:scale(0.01)'>MARK</p>",
    "scale property": "<p style='scale:0'>MARK</p>",
    "scaled in width": "<p style='transform:scaleX(.01)'>MARK</p>",
    "turned on edge": "<p style='transform:rotateY(90deg)'>MARK</p>",
    "turned away": "<p style='transform:rotateY(180deg);backface-visibility:hidden'>MARK</p>",
    "far back": "<div style='perspective:10px'><p style='transform:translateZ(-9000px)'>MARK</p></div>",
    "zoom": "<p style='zoom:.02'>MARK</p>",
    "no size": "<p style='font-size:0'>MARK</p>",
    "one pixel": "<p style='font-size:1px'>MARK</p>",
    "half a pixel in a frame": "<iframe style='border:0;height:30px' srcdoc=\"<p style='font-size:.5px'>MARK</p>\">"
    "</iframe>",
    "squeezed letters": "<p style='letter-spacing:-1em;white-space:nowrap'>MARK</p>",
    "off to the left": "<p style='position:absolute;left:-9999px'>MARK</p>",
    "off to the right": "<div style='position:fixed;left:5000px'>MARK</div>",
    "above": "<p style='position:absolute;top:-999px'>MARK</p>",
    "moved away": "<p style='transform:translateX(-5000px)'>MARK</p>",
    "indented away": "<p style='text-indent:-9999px;overflow:hidden'>MARK</p>",
    "indented to the right": "<p style='text-indent:120%;white-space:nowrap;overflow:hidden'>MARK</p>",
    "negative margin": "<div style='overflow:hidden'><p style='margin-left:-3000px;width:2000px'>MARK</p></div>",
    "closed box": "<div style='height:0;overflow:hidden'><p>MARK</p></div>",
    "box of three pixels": "<div style='height:3px;overflow:auto'><p>MARK</p></div>",
    "below the edge of a box": "<div style='height:24px;overflow:hidden'>ok<br><br>MARK</div>",
    "behind a clipped margin": "<div style='height:20px;overflow:clip'><p style='padding-top:40px'>MARK</p></div>",
    "columns beyond a box": "<div style='width:90px;height:20px;columns:1;overflow:hidden'>ok"
    "<p style='break-before:column'>MARK</p></div>",
    "line that is clamped": "<p style='overflow:hidden;display:-webkit-box;-webkit-line-clamp:1;"
    "-webkit-box-orient:vertical'>"
    "ok<br><br>MARK</p>",
    "beyond an ellipsis": "<p style='width:60px;overflow:hidden;white-space:nowrap;"
    "text-overflow:ellipsis'>a b c d e f g h i j k MARK</p>",
    "contained in nothing": "<div style='contain:strict;width:0;height:0'>MARK</div>",
    # Covered
    "under a box": "<div style='position:relative'>MARK<div style='position:absolute;inset:0;background:#fff'></div>"
    "</div>",
    "under a box that cannot be hit": "<div style='position:relative'>MARK<div style='position:absolute;inset:0;"
    "background:#fff;pointer-events:none'></div></div>",
    "under a box with text": "<div style='position:relative'>MARK"
    "<div style='position:absolute;inset:0;background:#fff'>"
    "shown</div></div>",
    "under a texture": "<div style='position:relative'>MARK"
    f"<div style='position:absolute;inset:0;background:#fff {TEXTURE}'>"
    "</div></div>",
    "under a canvas": "<div style='position:relative;height:24px'>MARK"
    "<canvas id=cv style='position:absolute;inset:0' height=24>"
    "</canvas></div><script>{const c=cv.getContext('2d');c.fillRect(0,0,400,24);c.fillStyle='#fff';"
    "c.fillText('shown',4,14)}</script>",
    "under a frame": "<div style='position:relative;height:50px'>MARK"
    "<iframe style='position:absolute;inset:0;height:40px;"
    "background:#fff' srcdoc='<p>shown'></iframe></div>",
    "under a pseudo-element": "<style>.ps{position:relative}.ps::after{content:'';position:absolute;inset:0;"
    "background:#fff}"
    "</style><p class=ps>MARK</p>",
    "under its own shadow": "<div style='position:relative'>MARK"
    "<div style='position:absolute;top:-40px;height:10px;width:99%;"
    "box-shadow:0 45px 0 20px #fff'></div></div>",
    "behind its ground": "<div style='background:#fff;isolation:auto'><p style='position:relative;z-index:-1'>MARK"
    "</p></div>",
    "white under text": "<div style='position:relative'>shown text"
    "<div style='position:absolute;inset:0;color:#fff;z-index:-1'>"
    "MARK</div></div>",
    "masked under text": "<div style='position:relative'>shown text<div style='position:absolute;inset:0;"
    "mask:linear-gradient(#000,#000) 0 0/0 0 no-repeat'>MARK</div></div>",
    "frame off the page": "<iframe style='position:absolute;left:-4000px' srcdoc='<p>MARK</p>'></iframe>",
    "frame of one pixel": "<iframe style='width:1px;height:1px;border:0' srcdoc='<p>MARK</p>'></iframe>",
    "frame without opacity": "<iframe style='opacity:0;height:30px' srcdoc='<p>MARK</p>'></iframe>",
    "frame in white": "<iframe style='height:40px' srcdoc='<p style=color:#fff>MARK</p>'></iframe>",
    "frame under a box": "<div style='position:relative'><iframe style='height:40px' srcdoc='<p>MARK</p>'></iframe>"
    "<div style='position:absolute;inset:0;background:#eee'>shown</div></div>",
    # Inside what scrolls, and inside what can be clicked
    "white in a scroller": "<div style='height:40px;overflow:auto'><div style='height:400px'></div>"
    "<p style='color:#fff'>MARK</p></div>",
    "filtered in a scroller": "<div style='height:40px;overflow:auto'><div style='height:400px'></div>"
    "<p style='filter:opacity(0)'>"
    "MARK</p></div>",
    "before a scroller's start": "<div style='height:40px;overflow:auto;position:relative'>ok"
    "<p style='position:absolute;left:-900px'>"
    "MARK</p><p style='height:90px'></p></div>",
    "hidden words of a link": "<a href=/x>ok<span style='display:none'>MARK</span></a>",
    "white words struck through": "<p><s>ok<span style='color:#fff'>MARK</span></s></p>",
    "white words of a link": "<a href=/x>ok<span style='color:#fff'>MARK</span></a>",
    "masked words of a button": "<button>ok<span style='mask:linear-gradient(#000,#000) 0 0/0 0 no-repeat'>MARK"
    "</span></button>",
    "hidden link": "<a href=/x style='display:none'>MARK</a>",
    "clipped link with a label": "<a href=/x style='display:block;clip-path:inset(100%)' aria-label=MARK>ok</a>",
    "covered button with a label": "<div style='position:relative'><button aria-label=MARK>+</button>"
    "<div style='position:absolute;inset:0;background:#fff'></div></div>",
    "made by a script": "<p id=ms></p><script>ms.style.opacity = 0; ms.textContent = 'MARK'</script>",
    "hidden in a shadow": "<div id=sh></div><script>sh.attachShadow({mode:'open'}).innerHTML='"
    "<p style=\"clip-path:circle(0)\">MARK'"
    "</script>",
    "white in a shadow": "<div id=sw></div><script>sw.attachShadow({mode:'open'}).innerHTML='"
    "<p style=\"color:#fff\">MARK'</script>",
    "hidden half of a line": "<p>ok <span style='filter:opacity(0)'>MARK</span> ok</p>",
    "hidden end of a text": "<p style='width:600px;mask:linear-gradient(90deg,#000 0 50px,transparent 50px)'>ok and"
    " more words then MARK</p>",
}  # fmt: skip

SHOWN = {
    "plain": "<p>MARK</p>",
    "light on dark": "<p style='color:#eee;background:#111'>MARK</p>",
    "grey": "<p style='color:#999'>MARK</p>",
    "small": "<p style='font-size:9px'>MARK</p>",
    "half opacity": "<p style='opacity:.5'>MARK</p>",
    "white on a dark sibling": "<div style='position:relative;height:24px'>"
    "<div style='position:absolute;inset:0;background:#123'>"
    "</div><p style='position:relative;color:#fff;margin:0'>MARK</p></div>",
    "white on a dark gradient": "<p style='color:#fff;background:linear-gradient(#000,#333)'>MARK</p>",
    "ink of the background": "<p style='background:linear-gradient(red,blue);background-clip:text;"
    "color:transparent'>MARK</p>",
    "ink of a shadow": "<p style='color:transparent;text-shadow:0 0 0 #000'>MARK</p>",
    "outlined letters": "<p style='-webkit-text-stroke:1px #000;color:#fff;font-size:30px'>MARK</p>",
    "svg text": "<svg width=90 height=20><text y=15>MARK</text></svg>",
    "filtered and readable": "<p style='filter:drop-shadow(1px 1px 1px #888)'>MARK</p>",
    "wide clip path": "<p style='clip-path:inset(0)'>MARK</p>",
    "mask that lets through": "<p style='mask-image:linear-gradient(#000,#000)'>MARK</p>",
    "turned": "<p style='transform:rotate(3deg);width:200px'>MARK</p>",
    "scaled": "<p style='transform:scale(1.2);transform-origin:0 0'>MARK</p>",
    "under a clear layer": "<div style='position:relative'>MARK"
    "<a href=/y aria-label=layer style='position:absolute;inset:0'></a></div>",
    "multiply": "<p style='mix-blend-mode:multiply'>MARK</p>",
    "inert": "<p inert>MARK</p>",
    "not for the pointer": "<p style='pointer-events:none'>MARK</p>",
    "in a scroller": "<div style='height:60px;overflow:auto'><p style='height:300px'>top</p><p>MARK</p></div>",
    "in a frame": "<iframe style='height:50px' srcdoc='<p>MARK</p>'></iframe>",
    "below in a frame": "<iframe style='height:50px' srcdoc='<p style=height:300px>x</p><p>MARK</p>'></iframe>",
    "in an open details": "<details open><summary>more</summary>MARK</details>",
    "in an open dialog": "<div style='position:relative;height:60px'><dialog open>MARK</dialog></div>",
    "in columns": "<div style='columns:2'><p>one</p><p>MARK</p></div>",
    "in a shadow": "<div><template shadowrootmode=open><p>MARK</p></template></div>",
    "slotted": "<div><template shadowrootmode=open><p><slot></slot></p></template>MARK</div>",
    "sticky": "<p style='position:sticky;top:0'>MARK</p>",
    "before an ellipsis": "<p style='width:160px;overflow:hidden;white-space:nowrap;"
    "text-overflow:ellipsis'>MARK and much more</p>",
    "vertical": "<p style='writing-mode:vertical-rl;height:90px'>MARK</p>",
    "right to left": "<p dir=rtl>MARK</p>",
    "uppercase ligature": "<p style='font-variant:small-caps;text-transform:lowercase'>MARK</p>",
    "with punctuation": "<p>( MARK )</p>",
    "text of a link": "<a href=/z>MARK</a>",
    "text of a button": "<button>MARK</button>",
    "no box of its own": "<div style='display:contents'>MARK</div>",
}  # fmt: skip


@pytest.fixture(scope="module")
async def s(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with scene(tmp_path_factory.mktemp("profiles")) as made:
        yield made


async def reached(s: Scene, path: str, ways: dict[str, str]) -> list[str]:
    """Opens pages with all these ways and returns the names of those whose text is in the outline."""
    parts = [f"<p>seen{n}</p><div>{part.replace('MARK', f'MARK{n}x')}</div>" for n, part in enumerate(ways.values())]
    output = ""
    left = iter(parts)
    while some := list(islice(left, WAYS_COUNT)):
        output += await s.output("open", url=s.page(path, "<!doctype html>" + "".join(some)))
    assert [name for n, name in enumerate(ways) if f"seen{n}" not in output] == []
    return [name for n, name in enumerate(ways) if f"MARK{n}x" in output]


async def test_no_way_of_hiding_text_brings_it_into_the_outline(s: Scene) -> None:
    assert await reached(s, "/hidden", HIDDEN) == []


async def test_text_that_is_painted_stays_however_it_is_painted(s: Scene) -> None:
    found = await reached(s, "/shown", SHOWN)
    assert [name for name in SHOWN if name not in found] == []


async def test_text_under_a_bar_that_stays_in_place_is_given(s: Scene) -> None:
    bar = "<div style='position:fixed;{edge}:0;left:0;right:0;height:90px;background:#ccc'>bar</div>"
    lines = "".join(f"<p>line{n}x</p>" for n in range(150))
    body = f"{bar.format(edge='bottom')}{bar.format(edge='top')}<div style='padding:90px 0'>{lines}</div>"
    output = await s.output("open", url=s.page("/bars", f"<!doctype html>{body}"))
    assert [n for n in range(150) if f"line{n}x" not in output] == []


async def test_looking_leaves_the_page_scrolled_as_it_was(s: Scene) -> None:
    body = """<p style="height:5000px">top</p><p id=end>end</p><script>scrollTo(0, 1234)</script>
    <button style="position:fixed;top:40%" onclick="end.textContent = `at ${scrollY}`">where</button>"""
    output = await s.output("open", url=s.page("/place", f"<!doctype html>{body}"))
    assert "at 1234" in await s.output("click", ref=ref_of(output, "where"))
