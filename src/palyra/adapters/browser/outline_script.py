"""The script that reads a page: which text a person would see, and what can be clicked.

Does not own: the words of the outline (outline), judging by pictures (paint_script).
The script runs in an isolated world: it sees the same tree as the page's scripts, and they cannot see or change it.
Invariant: every walk is bounded by nodes, characters and time, so that no page makes it endless.
"""

from palyra.adapters.browser.paint_script import LIMITS, PAINTING
from palyra.core.spelling import BLANK_RANGES

NODES_MAX = 150_000
CHARS_MAX = 64 * 1024
CONTROLS_MAX = 400
WALK_MS = 2_500
NAME_LENGTH_MAX = 160
HREF_LENGTH_MAX = 300
DEPTH_MAX = 600  # Parsers stop at 512; only a script nests deeper.

_LIMITS = (
    f"const NODES = {NODES_MAX}, CHARS = {CHARS_MAX}, CONTROLS = {CONTROLS_MAX}, WALK_MS = {WALK_MS},"
    f" NAME = {NAME_LENGTH_MAX}, HREF = {HREF_LENGTH_MAX}, DEPTH = {DEPTH_MAX};"
)

# What is not seen takes no room, so a page cannot push a name out of it. Spaces are left to the joining of spaces.
_BLANKS = "".join(rf"\u{{{first:x}}}-\u{{{last:x}}}" for first, last in BLANK_RANGES)
_UNSEEN = rf"const UNSEEN = /[^\P{{C}}\s]|[{_BLANKS}]/gu; const plain = (text) => text.replace(UNSEEN, '');"

# A form's own fields hide the members of its element: <input name=childNodes>. So prototypes are asked, not elements.
_ASKING = r"""
const reader = (proto, name) => {
  const read = Object.getOwnPropertyDescriptor(proto.prototype, name).get;
  return (node) => read.call(node);
};
const caller = (proto, name) => {
  const method = proto.prototype[name];
  return (node, ...given) => method.apply(node, given);
};
const nodeName = reader(Node, 'nodeName'), nodeType = reader(Node, 'nodeType'), childNodes = reader(Node, 'childNodes');
const parentElement = reader(Node, 'parentElement'), parentNode = reader(Node, 'parentNode');
const ownerDocument = reader(Node, 'ownerDocument'), children = reader(Element, 'children');
const ownShadow = reader(Element, 'shadowRoot'), ownEditable = reader(HTMLElement, 'isContentEditable');
const previousElementSibling = reader(Element, 'previousElementSibling');
const shadowRoot = (node) => (nodeType(node) === 1 ? ownShadow(node) : null);
const isContentEditable = (node) => {
  try { return ownEditable(node); } catch { return false; }
};
const rectOf = caller(Element, 'getBoundingClientRect'), getClientRects = caller(Element, 'getClientRects');
const getAttribute = caller(Element, 'getAttribute'), hasAttribute = caller(Element, 'hasAttribute');
const querySelector = caller(Element, 'querySelector'), getRootNode = caller(Node, 'getRootNode');
"""

_SEEING = r"""
const SKIPPED = new Set(['SCRIPT','STYLE','NOSCRIPT','TEMPLATE','HEAD','OBJECT','EMBED','AUDIO','VIDEO','CANVAS','DATALIST']);
const TINY_PX = 1, LETTER_PX = 3, INK_MIN = 16, ROOM_PX = 10;
const view = (node) => ownerDocument(node).defaultView;
// What a colour looks like, in whatever colour space it is written: it is painted on one pixel and read back.
const pixel = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
const painted = new Map();
const paint = (color) => {
  if (!painted.has(color)) {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = '#000';
    pixel.fillStyle = color;
    pixel.fillRect(0, 0, 1, 1);
    painted.set(color, Array.from(pixel.getImageData(0, 0, 1, 1).data));
  }
  return painted.get(color);
};
const alpha = (color) => paint(color)[3] / 255;
const isAlike = (one, other) => paint(one).slice(0, 3).every((part, at) => Math.abs(part - paint(other)[at]) <= INK_MIN);
// Nothing below such an element can be seen.
const isShut = (element, style) => {
  if (style.display === 'none' || style.contentVisibility === 'hidden' || parseFloat(style.opacity) < 0.05) return true;
  const box = rectOf(element);
  const isClipping = style.overflowX !== 'visible' || style.overflowY !== 'visible';
  if (isClipping && style.display !== 'contents' && (box.width <= TINY_PX || box.height <= TINY_PX)) return true;
  return false;
};
const ground = (element) => {
  for (let each = element; each; each = parentElement(each)) {
    const style = view(each).getComputedStyle(each);
    if (style.backgroundImage !== 'none') return null;
    if (alpha(style.backgroundColor) > 0.5) return style.backgroundColor;
  }
  return 'rgb(255, 255, 255)';
};
const isSameAsGround = (element, color) => {
  const under = ground(element);
  return under !== null && isAlike(under, color);
};
const inks = new WeakMap();
const hasInk = (element) => {
  if (!inks.has(element)) {
    const style = view(element).getComputedStyle(element);
    inks.set(element, style.visibility === 'visible' && parseFloat(style.fontSize) >= LETTER_PX
      && alpha(style.color) > 0.05 && alpha(style.webkitTextFillColor || style.color) > 0.05
      && !isSameAsGround(element, style.webkitTextFillColor || style.color));
  }
  return inks.get(element);
};
const isOnPage = (box, window_) =>
  box.width > 0 && box.height > 0 && box.right + window_.scrollX > 0 && box.bottom + window_.scrollY > 0
  && box.left + window_.scrollX < Math.max(window_.document.documentElement.scrollWidth, window_.innerWidth) + 1;
const isSeen = (text) => {
  const parent = parentElement(text) || (getRootNode(text) && getRootNode(text).host);
  if (!parent || !hasInk(parent) || !isPlain(parent)) return false;
  const range = ownerDocument(text).createRange();
  range.selectNodeContents(text);
  const box = range.getBoundingClientRect();
  return box.height >= LETTER_PX - 1 && isOnPage(box, view(text)) && isReachable(parent, box);
};
// Whether scrolling the boxes around it brings a place into sight: what a box cuts off for good is not reachable.
const isReachable = (element, box) => {
  let place = box, isFree = false;
  for (let each = element; each && each !== ownerDocument(each).body; each = parentOf(each)) {
    const style = view(each).getComputedStyle(each), own = rectOf(each);
    const isBox = !/^(inline|contents)$/.test(style.display);
    const isClipping = isBox && /hidden|clip|auto|scroll/.test(style.overflowX + style.overflowY);
    if (isClipping && !(isFree && style.position === 'static')) {
      const x = place.left + each.scrollLeft, y = place.top + each.scrollTop;
      const isScrolling = /auto|scroll/.test(style.overflowX + style.overflowY);
      if (isScrolling ? x + place.width <= own.left || y + place.height <= own.top || own.width < ROOM_PX || own.height < ROOM_PX
        : overlap(place, own) <= 0) return false;
      if (isScrolling) place = own;
      isFree = false;
    }
    isFree = style.position === 'absolute' || (isFree && style.position === 'static');
    if (style.position === 'fixed') return true;
  }
  return true;
};
const childrenOf = (node) => {
  if (nodeName(node) === 'SLOT' && node.assignedNodes) {
    const given = node.assignedNodes({flatten: true});
    if (given.length) return given;
  }
  if (nodeName(node) === 'DETAILS' && !node.open)
    return Array.from(children(node)).filter((each) => nodeName(each) === 'SUMMARY').slice(0, 1);
  return shadowRoot(node) ? childNodes(shadowRoot(node)) : childNodes(node);
};
"""

_NAMING = r"""
const ROLES = new Set(['button','link','checkbox','radio','switch','tab','menuitem','menuitemcheckbox','menuitemradio',
  'option','combobox','textbox','searchbox','slider','spinbutton','treeitem']);
const KINDS = {checkbox: 'checkbox', radio: 'radio', submit: 'button', button: 'button', reset: 'button', image: 'button',
  file: 'file', range: 'slider', color: 'color', password: 'password'};
// Many pages hide the box itself and draw its label instead; a click on the label is one on the box.
const isStandIn = (label) => label.control && ['checkbox', 'radio'].includes(label.control.type)
  && !label.control.checkVisibility({opacityProperty: true, visibilityProperty: true});
const isPointed = (element, style) => style.cursor === 'pointer' && parentElement(element)
  && view(element).getComputedStyle(parentElement(element)).cursor !== 'pointer';
const roleOf = (element) => {
  const given = (getAttribute(element, 'role') || '').trim().split(' ')[0].toLowerCase();
  switch (nodeName(element)) {
    case 'A': return hasAttribute(element, 'href') ? (ROLES.has(given) ? given : 'link') : ROLES.has(given) ? given : null;
    case 'BUTTON': case 'SUMMARY': return ROLES.has(given) ? given : 'button';
    case 'INPUT': return element.type === 'hidden' ? null : KINDS[element.type] || 'textbox';
    case 'TEXTAREA': return 'textbox';
    case 'SELECT': return 'select';
    case 'LABEL': return isStandIn(element) ? element.control.type : null;
  }
  if (ROLES.has(given)) return given;
  if (isContentEditable(element) && !(parentElement(element) && parentElement(element).isContentEditable)) return 'textbox';
  return hasAttribute(element, 'onclick') ? 'clickable' : null;
};
const shown = (root, room) => {
  const parts = [];
  let left = room, nodes = 2000;
  const take = (node, depth) => {
    if (left <= 0 || nodes-- <= 0 || depth > DEPTH) return;
    if (nodeType(node) === 3) {
      const text = node.data.trim() ? plain(seenPart(node).slice(0, 4 * room)).replace(/\s+/g, ' ') : '';
      if (text.trim()) { parts.push(text.slice(0, left)); left -= text.length; }
    } else if (nodeType(node) === 1 && !SKIPPED.has(nodeName(node))) {
      if (node !== root && isShut(node, view(node).getComputedStyle(node))) return;
      for (const child of childrenOf(node)) take(child, depth + 1);
    }
  };
  take(root, 0);
  return parts.join('').replace(/\s+/g, ' ').trim().slice(0, room);
};
const attribute = (element, name) => plain(getAttribute(element, name) || '').replace(/\s+/g, ' ').trim().slice(0, NAME);
const labelOf = (element) => {
  for (const each of element.labels || []) {
    const text = shown(each, NAME);
    if (text) return text;
  }
  return '';
};
const nameOf = (element, role) => {
  const isField = ['INPUT', 'TEXTAREA', 'SELECT'].includes(nodeName(element));
  const isButton = isField && role === 'button';
  if (isButton && element.value) return plain(element.value).replace(/\s+/g, ' ').slice(0, NAME);
  const text = isField ? labelOf(element) : role === 'textbox' ? '' : shown(element, NAME);
  if (text) return text;
  const image = querySelector(element, 'img[alt]');
  return attribute(element, 'aria-label') || attribute(element, 'placeholder') || attribute(element, 'title')
    || attribute(element, 'alt') || (image ? attribute(image, 'alt') : '') || attribute(element, 'name');
};
const stateOf = (element, role) => {
  const state = {};
  if (element.disabled || getAttribute(element, 'aria-disabled') === 'true') state.disabled = true;
  if (role === 'checkbox' || role === 'radio' || role === 'switch') {
    const box = nodeName(element) === 'LABEL' ? element.control : element;
    state.checked = nodeName(box) === 'INPUT' ? box.checked : getAttribute(box, 'aria-checked') === 'true';
  }
  if (role === 'select') {
    state.value = element.selectedOptions.length ? plain(element.selectedOptions[0].label).slice(0, NAME) : '';
    state.options = Array.from(element.options).slice(0, 20).map((each) => plain(each.label).slice(0, 60));
  } else if (role === 'textbox' || role === 'searchbox' || role === 'slider') {
    const value = 'value' in element ? element.value : shown(element, NAME);
    if (value) state.value = plain(String(value)).slice(0, NAME);
  } else if (role === 'password' && element.value) state.value = '(filled in)';
  if (role === 'link' && /^https?:/.test(element.href) && element.href.length <= HREF) state.href = element.href;
  return state;
};
"""

_WALKING = r"""
const sign = (element, role) => [nameOf(element, role), stateOf(element, role).href || ''].join('\\n');
const look = () => {
  const started = performance.now();
  const pieces = [], controls = [], told = [];
  let chars = 0, nodes = 0, depth = 0, isCut = false, isDeep = false;
  const add = (piece) => { pieces.push(piece); chars += typeof piece === 'string' ? piece.length : NAME; };
  const isFull = () => {
    nodes += 1;
    if (nodes > NODES || chars > CHARS || (nodes % 64 === 0 && performance.now() - started > WALK_MS)) isCut = true;
    return isCut;
  };
  const addText = (node, isPre) => {
    const text = plain(node.data.trim() ? seenPart(node) : node.data.slice(0, CHARS));
    if (text.trim()) add(isPre ? text : text.replace(/\s+/g, ' '));
    else if (text) add(isPre ? text : ' ');
  };
  const addControl = (element, role) => {
    if (controls.length < CONTROLS) { controls.push(element); told.push([role, sign(element, role)]); }
    add({role, name: nameOf(element, role), ...stateOf(element, role)});
  };
  const isTouchable = (element, style) =>
    style.visibility === 'visible' && isOnPage(rectOf(element), view(element))
    && ((isBoxSeen(element) ?? isPlain(element)) || ['checkbox', 'radio'].includes(element.type));
  const walkFrame = (frame) => {
    if (isBoxSeen(frame) === false || !isOnPage(rectOf(frame), view(frame))) return;
    const inner = frame.contentDocument;
    if (inner && inner.body) { add('\n'); walk(inner.body, false); add('\n'); }
    else add({frame: String(frame.src).slice(0, HREF)});
  };
  const walkChildren = (element, isPre) => {
    for (const child of childrenOf(element)) { if (isCut) return; walk(child, isPre); }
  };
  const walkElement = (element, isPre) => {
    const style = view(element).getComputedStyle(element), name = nodeName(element);
    if (SKIPPED.has(name) || isShut(element, style)) return;
    if (name === 'BR') { add('\n'); return; }
    if (name === 'IFRAME' || name === 'FRAME') { walkFrame(element); return; }
    const isBlock = !/^(inline|contents|none|table-cell)/.test(style.display);
    if (isBlock) add('\n');
    if (/^H[1-6]$/.test(name)) add('#'.repeat(+name[1]) + ' ');
    else if (style.display === 'list-item') add('- ');
    else if (style.display === 'table-cell' && previousElementSibling(element)) add(' | ');
    const role = roleOf(element) || (isPointed(element, style) ? 'clickable' : null);
    if (role && (getClientRects(element).length || role === 'checkbox' || role === 'radio') && isTouchable(element, style))
      addControl(element, role);
    const isWhole = ['INPUT', 'TEXTAREA', 'SELECT'].includes(name) || (role && name === 'LABEL')
      || (role && !querySelector(element, 'a[href],button,input,select,textarea') && shown(element, NAME + 1).length <= NAME);
    if (!isWhole) walkChildren(element, isPre || style.whiteSpace.startsWith('pre'));
    if (isBlock) add('\n');
  };
  const walk = (node, isPre) => {
    if (depth > DEPTH) isDeep = true;
    if (isFull() || depth > DEPTH) return;
    depth += 1;
    if (nodeType(node) === 3) addText(node, isPre);
    else if (nodeType(node) === 1) walkElement(node, isPre);
    depth -= 1;
  };
  if (document.body) walk(document.body, false);
  globalThis.controls = controls;
  globalThis.told = told;
  const title = plain(String(document.title || '')).slice(0, NAME);
  return {title, pieces, isCut: isCut || isDeep, count: controls.length};
};
"""

_TOUCHING = r"""
const found = (index) => {
  const element = (globalThis.controls || [])[index];
  return element && element.isConnected ? element : null;
};
const contains = (outer, inner) => {
  for (let each = inner; each; each = parentNode(each) || each.host) if (each === outer) return true;
  return false;
};
// What a person was shown is what is clicked: a control that calls itself something else now is another one.
const isSame = (element, index) => {
  const [role, was] = globalThis.told[index];
  return sign(element, role) === was;
};
const aim = (index) => {
  const element = found(index);
  if (!element) return {fault: 'gone'};
  if (!isSame(element, index)) return {fault: 'changed'};
  if (element.disabled) return {fault: 'disabled'};
  element.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
  const box = getClientRects(element)[0] || rectOf(element);
  if (!box.width || !box.height) return {fault: 'hidden'};
  let x = box.left + box.width / 2, y = box.top + box.height / 2;
  const scope = getRootNode(element).elementFromPoint ? getRootNode(element) : document;
  const hit = scope.elementFromPoint(x, y);
  const isOurs = hit && (contains(element, hit) || contains(hit, element)
    || Array.from(element.labels || []).some((label) => contains(label, hit)));
  if (!isOurs) return {fault: hit ? 'covered' : 'hidden'};
  for (let inner = view(element); inner !== window && inner.frameElement; inner = inner.parent) {
    const frame = rectOf(inner.frameElement);
    x += frame.left + inner.frameElement.clientLeft; y += frame.top + inner.frameElement.clientTop;
  }
  return {x, y};
};
const tell = (element) => {
  for (const name of ['input', 'change']) element.dispatchEvent(new Event(name, {bubbles: true}));
};
const choose = (element, text) => {
  const wanted = text.trim().toLowerCase();
  const option = Array.from(element.options).find((each) => each.label.trim().toLowerCase() === wanted)
    || Array.from(element.options).find((each) => each.value === text);
  if (!option) return {fault: 'no_option'};
  element.value = option.value;
  tell(element);
  return {isChosen: true};
};
const fill = (index, text) => {
  const element = found(index);
  if (!element) return {fault: 'gone'};
  if (!isSame(element, index)) return {fault: 'changed'};
  if (element.disabled || element.readOnly) return {fault: 'disabled'};
  if (nodeName(element) === 'SELECT') return choose(element, text);
  const kind = nodeName(element) === 'INPUT' ? element.type : '';
  if (['checkbox', 'radio', 'submit', 'button', 'reset', 'image', 'file'].includes(kind)) return {fault: 'not_text'};
  if (!['INPUT', 'TEXTAREA'].includes(nodeName(element)) && !isContentEditable(element)) return {fault: 'not_text'};
  element.scrollIntoView({block: 'center', behavior: 'instant'});
  element.focus();
  if (['date', 'time', 'month', 'week', 'datetime-local', 'color', 'range'].includes(kind)) {
    element.value = text;
    if (element.value !== text) return {fault: 'not_accepted'};
    tell(element);
    return {isChosen: true};
  }
  if (element.select) element.select();
  else ownerDocument(element).getSelection().selectAllChildren(element);
  return {isFocused: true};
};
"""

SCRIPT = (
    "(() => {'use strict';"
    + _LIMITS
    + LIMITS
    + _UNSEEN
    + _ASKING
    + _SEEING
    + _NAMING
    + _WALKING
    + _TOUCHING
    + PAINTING
    + "globalThis.palyra = {gather, turn, judge, back, look, aim, fill}; return true;})()"
)
