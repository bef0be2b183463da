// Makes elements, and brings what is shown up to date without taking away what has the focus.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit", "onpointermove", "onpointerleave", "onkeydown"];
/** What belongs to whoever looks, and not to what is shown. */
const KEPT = new Set(["open"]);

function filled(made, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (HANDLERS.includes(name)) made[name] = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

export function h(name, properties, ...children) {
  return filled(document.createElement(name), properties, children);
}

export function drawn(name, properties, ...children) {
  return filled(document.createElementNS(SVG, name), properties, children);
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}

function fits(known, wanted) {
  return known.nodeType === wanted.nodeType && known.nodeName === wanted.nodeName && keyOf(known) === keyOf(wanted);
}

function become(known, wanted) {
  if (known.nodeType === Node.TEXT_NODE) {
    if (known.data !== wanted.data) known.data = wanted.data;
    return;
  }
  for (const { name } of [...known.attributes]) {
    if (!wanted.hasAttribute(name) && !KEPT.has(name)) known.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (!KEPT.has(name) && known.getAttribute(name) !== value) known.setAttribute(name, value);
  }
  for (const name of HANDLERS) known[name] = wanted[name];
  patchChildren(known, [...wanted.childNodes]);
}

/** With what it does; so that what is wanted stays whole, and may be wanted again. */
function copied(node) {
  const made = node.cloneNode(false);
  for (const name of HANDLERS) if (node[name]) made[name] = node[name];
  for (const each of node.childNodes) made.append(copied(each));
  return made;
}

function patchChildren(place, wanted) {
  const byKey = new Map();
  for (const each of place.children) {
    const key = keyOf(each);
    if (key !== null) byKey.set(key, each);
  }
  let next = place.firstChild;
  for (const each of wanted) {
    const key = keyOf(each);
    const moved = key === null ? null : byKey.get(key);
    if (moved && moved !== next && fits(moved, each)) place.insertBefore(moved, next);
    const known = moved && fits(moved, each) ? moved : next;
    if (known && fits(known, each)) {
      become(known, each);
      next = known.nextSibling;
    } else {
      place.insertBefore(copied(each), next);
    }
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}

/** What is in a place becomes what is wanted; elements that stay what they were are kept. */
export function patch(place, ...wanted) {
  const fragment = document.createDocumentFragment();
  const focused = document.activeElement;
  filled(fragment, null, wanted);
  patchChildren(place, [...fragment.childNodes]);
  // An element that was moved has lost it.
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}
