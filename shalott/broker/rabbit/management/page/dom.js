// Elements are made of text and attributes only, never of markup: whatever a queue is called, or a
// message says, is shown as it is.
const SVG = "http://www.w3.org/2000/svg";

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child == null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, attributes, ...children) =>
  made(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) =>
  made(document.createElementNS(SVG, tag), attributes, children);

// Something with a hint that mouse and keyboard show.
export const tip = (label, text, kind = "") =>
  h("span", { class: `tip ${kind}`, tabindex: 0 }, label, h("span", { role: "tooltip" }, text));

export const card = (label, value) => h("div", { class: "card" }, label, h("b", {}, value));

// columns: {label, cell(row), number?, wrong?(row)}. On a phone each cell says what it is.
export function table(caption, columns, rows, none = "none") {
  const kind = (column) => (column.number ? "number" : null);
  const classes = (column, row) =>
    [kind(column), column.wrong?.(row) ? "wrong" : null].filter(Boolean).join(" ") || null;
  if (!rows.length) return h("p", { class: "soft" }, none);
  return h("table", { "aria-label": caption },
    h("thead", {}, h("tr", {},
      columns.map((each) => h("th", { scope: "col", class: kind(each) }, each.label)))),
    h("tbody", {}, rows.map((row) => h("tr", {},
      columns.map((each) =>
        h("td", { class: classes(each, row), "data-label": each.label }, each.cell(row)))))));
}

export const columns = (...labels) =>
  labels.map(([label, cell, number = false]) => ({ label, cell, number }));

// Make what is shown like what is wanted, and leave alone what is alike: focus, selections and what
// somebody is typing outlive a refresh.
export function patch(shown, wanted) {
  const before = [...shown.childNodes], after = [...wanted.childNodes];
  after.forEach((node, at) => {
    const old = before[at];
    if (!old) shown.append(node);
    else if (old.nodeType !== node.nodeType || old.nodeName !== node.nodeName) old.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) {
      if (old.data !== node.data) old.data = node.data;
    } else {
      for (const { name } of [...old.attributes])
        if (!node.hasAttribute(name) && name !== "open") old.removeAttribute(name);
      for (const { name, value } of node.attributes)
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      patch(old, node);
    }
  });
  before.slice(after.length).forEach((node) => node.remove());
}

export const bytes = (count) => {
  if (count == null) return "?";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0, value = count;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
};
export const rate = (stats, name) => {
  const known = stats?.[`${name}_details`]?.rate;
  return known == null ? "" : `${known.toFixed(1)}/s`;
};
export const count = (value) => (value == null ? "?" : String(value));
export const yes = (value) => (value ? "yes" : "no");
