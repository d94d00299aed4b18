r"""The part of the page's script that judges by pictures: which words and controls are painted where they stand.

Does not own: walking the page and its words (outline_script), taking the pictures and scrolling (tab).
A word is seen if one picture has ink in its place, nothing opaque lies over it, and no other text shares the place.
What no picture shows, because it lies in a box that scrolls or too far below, is judged by its style (outline_script).
"""

WORD_LENGTH_MAX = 24  # Longer words, and text without spaces, are judged in pieces.
SCREEN_SHARE = (
    0.7  # How far each picture is below the last, so that bars fixed to an edge cover nothing in all of them.
)

LIMITS = f"const WORD = {WORD_LENGTH_MAX}, SHARE = {SCREEN_SHARE};"

PAINTING = r"""
const UNJUDGED = 0, UNSEEN_HERE = 1, SEEN_HERE = 2;
const OPAQUE = 0.9, LETTER_WIDTH_PX = 0.7, WORD_SPLIT = new RegExp(`\\S{1,${WORD}}`, 'gu');
const PICTURES = new Set(['IMG','CANVAS','VIDEO','IFRAME','FRAME','EMBED','OBJECT']);
let texts = [], boxes = [], texts_ = new WeakMap(), boxes_ = new WeakMap(), cameFrom = 0;
const parentOf = (node) => parentElement(node) || (getRootNode(node) && getRootNode(node).host) || null;
const wordsOf = (text) => Array.from(text.data.slice(0, CHARS).matchAll(WORD_SPLIT), (found) => [found.index, found[0]]);
const gather = () => {
  let left = NODES, room = CHARS, bottom = 0;
  const started = performance.now();
  texts = []; boxes = []; texts_ = new WeakMap(); boxes_ = new WeakMap(); cameFrom = window.scrollY;
  const keep = (list, index, node, box, entry) => {
    const [, top, , height] = inPage(node, box);
    Object.assign(entry, {node, top: top + cameFrom, bottom: top + height + cameFrom});
    if (list === boxes && entry.bottom - entry.top > 4 * window.innerHeight) return;
    list.push(entry); index.set(node, entry); bottom = Math.max(bottom, entry.bottom);
  };
  const take = (node, depth) => {
    if (left-- <= 0 || depth > DEPTH || (left % 64 === 0 && performance.now() - started > WALK_MS / 5)) return;
    if (nodeType(node) === 3) {
      if (!node.data.trim() || room <= 0) return;
      const found = wordsOf(node), range = ownerDocument(node).createRange();
      room -= node.data.length;
      range.selectNodeContents(node);
      const entry = {data: node.data, words: found, marks: new Uint8Array(found.length)};
      keep(texts, texts_, node, range.getBoundingClientRect(), entry);
    } else if (nodeType(node) === 1 && !SKIPPED.has(nodeName(node))) {
      const style = view(node).getComputedStyle(node), isFrame = /^I?FRAME$/.test(nodeName(node));
      if (isShut(node, style)) return;
      if (isFrame || roleOf(node) || isPointed(node, style)) keep(boxes, boxes_, node, rectOf(node), {mark: UNJUDGED});
      const inner = isFrame && node.contentDocument;
      if (inner && inner.body) take(inner.body, depth + 1);
      if (!isFrame) for (const child of childrenOf(node)) take(child, depth + 1);
    }
  };
  if (document.body) take(document.body, 0);
  const height = Math.min(bottom, document.documentElement ? document.documentElement.scrollHeight : 0);
  return 1 + Math.ceil(Math.max(0, height - window.innerHeight) / (SHARE * window.innerHeight));
};
const turn = (step) => window.scrollTo({top: step * SHARE * window.innerHeight, behavior: 'instant'});
const back = () => window.scrollTo({top: cameFrom, behavior: 'instant'});
// A box of an element in the coordinates of the top window: left, top, width, height.
const inPage = (node, box) => {
  let [left, top, width, height] = [box.left, box.top, box.width, box.height];
  for (let inner = view(node); inner !== window && inner.frameElement; inner = inner.parent) {
    const frame = inner.frameElement, outer = rectOf(frame);
    const across = outer.width / (frame.offsetWidth || 1), down = outer.height / (frame.offsetHeight || 1);
    [left, top] = [outer.left + (frame.clientLeft + left) * across, outer.top + (frame.clientTop + top) * down];
    [width, height] = [width * across, height * down];
  }
  return [left, top, width, height];
};
const scrollers = new WeakMap();
// The nearest box that scrolls, other than the page itself.
const scrollerOf = (element) => {
  if (!element || element === ownerDocument(element).body || element === ownerDocument(element).documentElement) return null;
  if (!scrollers.has(element)) {
    const style = view(element).getComputedStyle(element);
    const isOne = /auto|scroll/.test(style.overflowX + style.overflowY) && style.display !== 'inline'
      && (element.scrollHeight > element.clientHeight + 1 || element.scrollWidth > element.clientWidth + 1);
    scrollers.set(element, isOne ? element : scrollerOf(parentOf(element)));
  }
  return scrollers.get(element);
};
const isWithin = (x, y, box) => x >= box.left && x <= box.right && y >= box.top && y <= box.bottom;
// Whether the point, in the element's own window, can be in the picture: in the window and in every box that scrolls.
const isPictured = (element, x, y) => {
  const window_ = view(element);
  if (x < 0 || y < 0 || x >= window_.innerWidth || y >= window_.innerHeight) return false;
  for (let each = scrollerOf(element); each; each = scrollerOf(parentOf(each)))
    if (!isWithin(x, y, rectOf(each))) return false;
  if (window_ === window || !window_.frameElement) return true;
  const [left, top] = inPage(element, {left: x, top: y, width: 0, height: 0});
  return left >= 0 && top >= 0 && left < window.innerWidth && top < window.innerHeight;
};
const strength = (element) => {
  let kept = 1;
  for (let each = element; each; each = parentOf(each)) {
    const style = view(each).getComputedStyle(each);
    kept *= style.mixBlendMode === 'normal' ? parseFloat(style.opacity) : 0;
  }
  return kept;
};
const covers = (element) => {
  const own = PICTURES.has(nodeName(element)) ? 1 : alpha(view(element).getComputedStyle(element).backgroundColor);
  return own > OPAQUE && strength(element) > OPAQUE;
};
const cannotBeHit = (element) => {
  for (let each = element; each; each = parentOf(each)) if (hasAttribute(each, 'inert')) return true;
  return view(element).getComputedStyle(element).pointerEvents === 'none';
};
// Whether nothing opaque lies over what is `own` at a point of its window, and over the frames around that window.
const isUncovered = (element, x, y, isOwn) => {
  const root = getRootNode(element), scope = root.elementsFromPoint ? root : ownerDocument(element);
  const stack = scope.elementsFromPoint(x, y), at = stack.findIndex(isOwn);
  if (at < 0 && !cannotBeHit(element)) return false;
  if (at > 0 && stack.slice(0, at).some((each) => !contains(each, element) && covers(each))) return false;
  const frame = view(element) !== window && view(element).frameElement;
  if (!frame) return true;
  const outer = rectOf(frame);
  return isUncovered(frame, outer.left + frame.clientLeft + x, outer.top + frame.clientTop + y, (each) => each === frame);
};
// The element whose box holds the text.
const holderOf = (text) => {
  let holder = parentOf(text);
  while (parentOf(holder) && view(holder).getComputedStyle(holder).display === 'contents') holder = parentOf(holder);
  return holder;
};
const isTextUncovered = (text, x, y) => {
  const holder = holderOf(text);
  return isUncovered(holder, x, y, (each) => each === holder);
};
const isBoxUncovered = (box, x, y) => isUncovered(box, x, y, (each) => contains(box, each));
// The difference of the brightest and the darkest part of a place in the picture, without its edges.
const contrast = (picture, [left, top, width, height]) => {
  const across = picture.width / window.innerWidth, down = picture.height / window.innerHeight;
  const edge = Math.min(width / 4, Math.max(1, width / 10));  // Letters beside it may reach into its place.
  const first = Math.max(0, Math.ceil((left + edge) * across));
  const last = Math.min(picture.width, Math.max(first + 1, Math.floor((left + width - edge) * across)));
  const from = Math.max(0, Math.floor((top + height * 0.2) * down));
  const to = Math.min(picture.height, Math.ceil((top + height * 0.85) * down));
  const low = [255, 255, 255], high = [0, 0, 0];
  const skip = Math.max(1, Math.floor((last - first) * (to - from) / 4000));
  for (let y = from; y < to; y += 1) for (let x = first; x < last; x += skip) {
    const at = 4 * (y * picture.width + x);
    for (let part = 0; part < 3; part += 1) {
      low[part] = Math.min(low[part], picture.data[at + part]);
      high[part] = Math.max(high[part], picture.data[at + part]);
    }
  }
  return Math.max(...high.map((value, part) => value - low[part]));
};
// Whether the letters are painted as their style says, with nothing between their ink and the picture.
const plains = new WeakMap();
const isPlain = (element) => {
  if (!element) return true;
  if (!plains.has(element)) {
    const style = view(element).getComputedStyle(element);
    plains.set(element, style.filter === 'none' && (style.maskImage || 'none') === 'none' && style.clipPath === 'none'
      && style.mixBlendMode === 'normal' && style.clip === 'auto' && style.perspective === 'none'
      && !style.transform.startsWith('matrix3d') && parseFloat(style.opacity) > 0.3 && isPlain(parentOf(element))
      && (parentOf(element) !== null || view(element) === window || isPlain(view(element).frameElement)));
  }
  return plains.get(element);
};
const overlap = (one, other) => {
  const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
  const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
  return across > 0 && down > 0 ? across * down / (one.width * one.height) : 0;
};
// Where two texts share a place, the picture does not say whose ink it shows.
const sharers = (near, text, box) => near.filter((other) => other.node !== text && view(other.node) === view(text)
  && other.rects.some((each) => overlap(box, each) > 0.3));
// A line through or under the letters is ink too, and stays when the letters have none.
const isDecorated = (element) => {
  for (let each = element; each; each = parentOf(each))
    if (view(each).getComputedStyle(each).textDecorationLine !== 'none') return true;
  return false;
};
const isWordSeen = (picture, text, box, near) => {
  const parent = parentOf(text), style = view(parent).getComputedStyle(parent);
  const x = box.left + box.width / 2, y = box.top + box.height / 2;
  if (style.visibility !== 'visible' || !isTextUncovered(text, x, y)) return false;
  const place = inPage(text, box);
  if (place[3] < LETTER_PX - 1 || contrast(picture, place) < INK_MIN) return false;
  const sharing = sharers(near, text, box);
  if (!sharing.length) return hasInk(parent) || !isDecorated(parent);
  if (!hasInk(parent) || !isPlain(parent)) return false;
  const order = getRootNode(parent).elementsFromPoint(x, y), depth = (node) => order.indexOf(holderOf(node));
  return sharing.every((other) => depth(other.node) < 0 || depth(text) <= depth(other.node));
};
const judgeWord = (picture, entry, index, near) => {
  const [start, word] = entry.words[index], parent = parentOf(entry.node);
  if (!parent || entry.node.data !== entry.data) return;
  const range = ownerDocument(entry.node).createRange();
  range.setStart(entry.node, start);
  range.setEnd(entry.node, start + word.length);
  const found = Array.from(range.getClientRects()).filter((box) => box.width > 0 && box.height > 0);
  const letters = /[\p{L}\p{N}]/u.test(word);
  if (!found.length || range.getBoundingClientRect().width < LETTER_WIDTH_PX * word.length) {
    if (letters) entry.marks[index] = Math.max(entry.marks[index], UNSEEN_HERE);
    return;
  }
  if (!found.every((box) => isPictured(parent, box.left + box.width / 2, box.top + box.height * 0.2)
    && isPictured(parent, box.left + box.width / 2, box.bottom - box.height * 0.2))) return;
  const isSeenHere = found.every((box) => isWordSeen(picture, entry.node, box, near));
  if (letters || isSeenHere) entry.marks[index] = Math.max(entry.marks[index], isSeenHere ? SEEN_HERE : UNSEEN_HERE);
};
const judgeBox = (picture, entry) => {
  const box = rectOf(entry.node), x = box.left + box.width / 2, y = box.top + box.height / 2;
  if (!box.width || !box.height || !isPictured(entry.node, x, y)) return;
  const isSeenHere = isBoxUncovered(entry.node, x, y)
    && (/^I?FRAME$/.test(nodeName(entry.node)) || contrast(picture, grown(inPage(entry.node, box))) >= INK_MIN);
  entry.mark = Math.max(entry.mark, isSeenHere ? SEEN_HERE : UNSEEN_HERE);
};
// A button's border may be all that is seen of it.
const grown = ([left, top, width, height]) => [left - width / 4, top - height / 2, width * 1.5, height * 2];
const decode = async (encoded) => {
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], {type: 'image/png'}));
  const sheet = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d', {willReadFrequently: true});
  sheet.drawImage(bitmap, 0, 0);
  return sheet.getImageData(0, 0, bitmap.width, bitmap.height);
};
// Marks what this picture shows: what one picture shows stays seen.
const judge = async (encoded, limit) => {
  const picture = await decode(encoded), started = performance.now();
  const above = window.scrollY, below = above + window.innerHeight;
  const isNear = (entry) => entry.bottom > above && entry.top < below && entry.node.isConnected;
  const near = texts.filter(isNear);
  for (const entry of near) {
    const range = ownerDocument(entry.node).createRange();
    range.selectNodeContents(entry.node);
    entry.rects = Array.from(range.getClientRects()).slice(0, 200);
  }
  for (const entry of boxes.filter(isNear)) judgeBox(picture, entry);
  for (const entry of near) for (let index = 0; index < entry.words.length; index += 1) {
    if (entry.marks[index] === SEEN_HERE) continue;
    if (performance.now() - started > limit) return false;
    judgeWord(picture, entry, index, near);
  }
  return true;
};
// What is seen of a text, and whether a box is; null where no picture says it.
const isBoxSeen = (element) => {
  const entry = boxes_.get(element);
  return !entry || entry.mark === UNJUDGED ? null : entry.mark === SEEN_HERE;
};
const seenPart = (text) => {
  const entry = texts_.get(text), data = text.data.slice(0, CHARS);
  if (!entry || entry.data !== text.data || !entry.marks.some(Boolean)) return isSeen(text) ? data : '';
  if (entry.marks.every((mark) => mark === SEEN_HERE)) return data;
  const isRestSeen = entry.marks.includes(UNJUDGED) && isSeen(text);
  let part = '', at = 0, isKept = false;
  entry.words.forEach(([start, word], index) => {
    const mark = entry.marks[index], hasLetters = /[\p{L}\p{N}]/u.test(word);
    if (mark !== UNJUDGED) isKept = mark === SEEN_HERE;
    else if (hasLetters) isKept = isRestSeen;
    part += data.slice(at, start) + (isKept ? word : '');
    at = start + word.length;
  });
  return part + data.slice(at);
};
"""
