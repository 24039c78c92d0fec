"use strict";

// ---------------- Small tools

const $ = id => document.getElementById(id);
const isNumber = value => typeof value === "number" && Number.isFinite(value);
const list = value => Array.isArray(value) ? value : [];
const sum = (values, of) => values.reduce((total, value) => total + (of(value) || 0), 0);
const joined = (parts, separator = " · ") => parts.filter(Boolean).join(separator);
const plural = (count, noun, nouns = `${noun}s`) => `${count.toLocaleString("en")} ${count === 1 ? noun : nouns}`;

/** Makes an element. Text only ever enters as a text node, so nothing in a record can become markup. */
function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const svg = /^(svg|g|path|rect|text|tspan|defs|marker)$/.test(name);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("--")) element.style.setProperty(key, value);
    else if (key === "style") Object.assign(element.style, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== undefined && child !== null && child !== ""));
  return element;
}

const significant = value => value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);

function duration(ns) {
  if (!isNumber(ns)) return "not timed";
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
    if (ns >= size * 0.9995) return `${significant(ns / size)} ${unit}`;
  return `${Math.round(ns)} ns`;
}

/** A duration without trailing zeros, for the marks of an axis: "200 µs", "1.5 ms". */
function roundDuration(ns) {
  if (!ns) return "0";
  const [number, unit] = duration(ns).split(" ");
  return `${Number(number)} ${unit}`;
}

/** From 0 to at most `whole`: multiples of 1, 2 or 5 times a power of ten, whole nanoseconds, five at most. */
function evenMarks(whole) {
  const rough = Math.max(whole / 4, 1), power = 10 ** Math.floor(Math.log10(rough) + 1e-9);
  const stride = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= rough * (1 - 1e-9));
  return Array.from({length: Math.floor(whole / stride + 1e-9) + 1}, (_, index) => index * stride);
}

function bytes(count, step = 1000) {
  const units = step === 1024 ? ["B", "KiB", "MiB", "GiB", "TiB"] : ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= step && unit < units.length - 1) { count /= step; ++unit; }
  return `${unit && !Number.isInteger(count) ? significant(count) : count} ${units[unit]}`;
}

function show(value) {
  if (Array.isArray(value)) return value.map(show).join(", ");
  if (value && typeof value === "object")
    return show(Object.entries(value).map(([key, item]) => `${key} ${show(item)}`));
  return String(value ?? "none");
}

const share = part => part < 0.0001 ? "< 0.01 %" : `${part > 0.9995 ? 100 : significant(part * 100)} %`;
const shape = dimensions => `(${dimensions.join(", ")}${dimensions.length === 1 ? "," : ""})`;
const tensor = ({dtype, shape: size, device}) =>
  joined([dtype, Array.isArray(size) && shape(size), device && `on ${device}`], " ");

/** Splits a name where it may break: after a separator and inside CamelCase. */
const breakable = name => String(name).split(/(?<=[._ :-])|(?<=[a-z])(?=[A-Z])/).flatMap(part => [part, h("wbr")]);

// ---------------- Code

const keywords = new Set((
  "__global __kernel alignas and auto bool break case char class const constexpr continue def default device do " +
  "double else enum false False float for from global if import in inline int is kernel lambda local long " +
  "namespace new None not nullptr operator or private public return short signed sizeof static struct switch " +
  "template this true True typename unsigned using void while with yield").split(" "));
const tokens = {
  code: /(\/\/.*|\/\*.*?\*\/)|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])')|\b(\d[\w.']*)|\b([A-Za-z_]\w*)/g,
  python: /(#.*)|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\b(\d[\w.]*)|\b([A-Za-z_]\w*)/g,
  assembly: /((?:[#;]|\/\/).*)|("[^"]*")|(\$?-?\b0x[\da-f]+\b|\$-?\d+)|(?<=^\s*(?:\S+:\s*)?)(\.?[a-z][\w.]*)(?=\s|$)/g,
};

function code(text, language, name, first, here) {
  const pattern = tokens[language === "assembly" || language === "python" ? language : "code"];
  const lines = String(text).replace(/\n$/, "").split("\n").map((line, index) => {
    const parts = [];
    let end = 0;
    for (const match of line.matchAll(pattern)) {
      const kind = match[1] ? "c" : match[2] ? "s" : match[3] ? "n"
        : language === "assembly" ? "m" : keywords.has(match[4]) ? "k" : null;
      parts.push(line.slice(end, match.index), kind ? h(`span.${kind}`, null, match[0]) : match[0]);
      end = match.index + match[0].length;
    }
    const number = first === undefined ? null : first + index;
    const tag = number !== null && number === here ? "span.here" : "span";
    return h(tag, {"data-line": number ?? ""}, parts, line.slice(end), "\n");
  });
  return h("pre", {tabindex: 0, role: "region", "aria-label": name}, h("code", null, lines));
}

/** A piece of code with its name, and a note such as where it stands. */
function codeBlock(name, note, content) {
  return h("div", null, h("div.code-head", null, h("h3", null, name), h("span", null, breakable(note))), content);
}

/** Shows pieces of code, side by side where there is room. */
function openDialog(title, blocks, none) {
  const dialog = $("code");
  dialog.replaceChildren(
    h("form.title-row", {method: "dialog"},
      h("h2", {id: "code-title"}, title), h("button.small-button", null, "Close")),
    blocks.length ? h("div.side-by-side", null, blocks) : h("p.dim", null, none));
  dialog.showModal();
  for (const line of dialog.querySelectorAll(".here")) line.scrollIntoView({block: "center", inline: "start"});
}

// ---------------- Cards

function card(id, title, note, wide, ...content) {
  return h(wide ? "section.card.wide" : "section.card", {id, "aria-label": title},
    h("h2", null, title), note ? h("p", null, note) : null, content);
}
