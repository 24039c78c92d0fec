(() => {

// ---------------- The record

let trace;
try {
  trace = JSON.parse($("trace").textContent);
} catch (error) {
  $("subtitle").textContent = `This page holds no readable trace: ${error.message}`;
  for (const id of ["timeline-place", "tiles"]) $(id).hidden = true;
  $("main").hidden = true;
  return;
}
const steps = list(trace.steps), ops = list(trace.ops), machine = trace.machine || {}, result = trace.result || {};
const memory = trace.memory || {}, recorder = trace.recorder || {}, ceiling = machine.ceiling || {};
const last = steps.reduce((most, step) => Math.max(most, step.from || 0, step.to || 0), 0);
const participants = Array.from({length: Math.max(last + 1, list(trace.participants).length)},
                                (_, index) => list(trace.participants)[index] ?? `part ${index + 1}`);
const from = step => step.from ?? step.to ?? 0, to = step => step.to ?? step.from ?? 0;
const phaseOf = step => step.phase || "Other";
const phases = [...new Set(["Python", "Validate", "Compute", "Record", "Return", ...steps.map(phaseOf)])]
  .filter(phase => steps.some(step => phaseOf(step) === phase));
const timed = steps.filter(step => isNumber(step.ns) && !step.below_resolution);
const longestOf = some => some.reduce((most, step) => !most || (step.ns || 0) > (most.ns || 0) ? step : most, null);
const hottest = longestOf(timed);
const timeOf = step => step.below_resolution ? `< ${duration(Math.ceil(recorder.resolution_ns || 10))}` : duration(step.ns);
const factsOf = step => Object.entries(step.facts || {});
const routeOf = (step, arrow = " → ") =>
  [...new Set([from(step), to(step)])].map(index => participants[index]).join(arrow);
const kernels = (() => {
  const named = steps.filter(step => step.facts && step.facts.kernel !== undefined);
  return named.length ? named : steps.filter(step => from(step) !== to(step) && /^kernel\b/i.test(participants[to(step)]));
})();
const opOf = step => step.op ?? 0, depthOf = step => step.depth || 0;
const opNumbers = [...new Set(steps.map(opOf))];
const severalOps = opNumbers.length > 1;
const opName = number => (ops[number] || {}).name || `operation ${number + 1}`;

// ---------------- Header

function drawHeader() {
  const title = trace.expression || "Trace";
  document.title = `${title}, end to end`;
  $("expression").textContent = title;
  $("subtitle").textContent = joined([
    trace.where, machine.cpu, machine.isa, isNumber(machine.threads) && plural(machine.threads, "thread"),
    Object.keys(result).length && `result ${tensor(result)}`, result.grad_fn && `grad_fn ${result.grad_fn}`,
  ]);
  $("tiles").append(...tiles());
}

function tile(value, note, part) {
  const meter = isNumber(part)
    ? h("span.meter", {"aria-hidden": "true"}, h("i", {style: {width: `${Math.min(100, part * 100)}%`}})) : null;
  return h("li", null, h("b", null, value), h("span", null, note), meter);
}

function tiles() {
  const found = [], several = kernels.length > 1;
  if (isNumber(trace.total_ns)) found.push(tile(duration(trace.total_ns), "from Python to Python"));
  else if (!timed.length) found.push(tile("not timed", "the function was run once"));
  const around = isNumber(trace.around_ns) ? trace.around_ns
    : isNumber(trace.total_ns) && kernels.length && kernels.every(step => isNumber(step.ns))
      ? Math.max(0, trace.total_ns - sum(kernels, step => step.ns)) : null;
  if (around !== null) found.push(tile(duration(around), several ? "around the kernels" : "around the kernel"));
  found.push(...bandwidthTile(several));
  if (isNumber(trace.interpreter_ns)) found.push(tile(duration(trace.interpreter_ns), "in the interpreter"));
  const copies = sum(steps, step => step.copies);
  if (copies) found.push(tile(bytes(sum(steps, step => step.copied_bytes)), `in ${plural(copies, "copy", "copies")}`));
  if (isNumber(memory.pool_hits)) {
    const asked = memory.pool_hits + (memory.pool_misses || 0);
    found.push(tile(`${memory.pool_hits} of ${asked}`, asked === 1 ? "block from the pool" : "blocks from the pool"));
  }
  return found;
}

function bandwidthTile(several) {
  const rated = longestOf(kernels.filter(step => isNumber(step.gb_per_s)));
  if (!rated) return [];
  const which = several && "longest measured kernel", rate = significant(rated.gb_per_s), limit = rated.ceiling || {};
  if (!isNumber(limit.gb_per_s)) return [tile(`${rate} GB/s`, which || "moved by the kernel")];
  const part = rated.gb_per_s / limit.gb_per_s;
  return [tile(`${rate} of ${significant(limit.gb_per_s)} GB/s`,
               joined([`${Math.round(part * 100)} % of ${limit.name || "the ceiling"}`, which], "; "), part)];
}

// ---------------- Timeline

let scale = hottest && isNumber(trace.total_ns) && hottest.ns < trace.total_ns / 2 ? "linear" : "log";
let onlyPhase = null;

/** Places each step on the timeline: [left, width, elapsed ns at its start], in shares of the whole. */
function placeSteps() {
  const linear = scale === "linear" && timed.length;
  const weight = step => linear ? step.ns || 0 : isNumber(step.ns) ? 0.2 + Math.log10(1 + step.ns) : 1;
  const starts = linear && steps.every(step => isNumber(step.start_ns));
  let end = 0, elapsed = 0;
  const places = steps.map(step => {
    const left = starts ? step.start_ns : end, at = isNumber(step.start_ns) ? step.start_ns : elapsed;
    end = Math.max(end, left + weight(step));
    elapsed = at + (step.ns || 0);
    return [left, weight(step), at];
  });
  const whole = (linear ? Math.max(end, trace.total_ns || 0) : end) || 1;
  return {places: places.map(([left, width, at]) => [left / whole, width / whole, at]), whole, elapsed};
}

/** At most five marks for the axis, as [share, text], far enough apart for their texts. */
function marks({places, whole, elapsed}) {
  if (!timed.length) return [[0, "first step"], [1, "last step"]];
  if (scale === "linear") {
    const even = evenMarks(whole).map(ns => [ns / whole, roundDuration(ns)]);
    return even.at(-1)[0] < 0.82 ? [...even, [1, duration(whole)]] : even;
  }
  const chosen = [[0, "0"]];
  for (const target of [0.25, 0.5, 0.75]) {
    const place = places.find(([left]) => left >= target - 0.08);
    const [before, said] = chosen.at(-1), text = place && duration(place[2]);
    if (place && place[0] - before > 0.19 && place[0] < 0.81 && text !== said) chosen.push([place[0], text]);
  }
  const end = duration(Math.max(elapsed, trace.total_ns || 0));
  // The last text ends at the edge, so the one before it needs half as much again.
  return [...chosen.filter(([share, text]) => text !== end && share < 0.72), [1, end]];
}

const blocks = [];
function drawTimeline() {
  const placing = placeSteps(), tracks = {};
  const percent = share => `${(share * 100).toFixed(3)}%`;
  const groups = phases.map(phase => {
    const own = steps.filter(step => phaseOf(step) === phase);
    const time = own.some(step => isNumber(step.ns)) ? sum(own, step => step.ns) : null;
    const text = joined([plural(own.length, "step"), time !== null && duration(time)], ", ");
    return {phase, size: time ?? own.length, text};
  });
  $("phase-bar").replaceChildren(...groups.map(({phase, size}) =>
    h("i", {"data-phase": phase, style: {flex: `${size} 0 0`}})));
  $("phase-bar").setAttribute("aria-label", groups.map(({phase, text}) => `${phase}: ${text}`).join("; "));
  $("phase-bar").hidden = !timed.length;
  $("lanes").replaceChildren(...groups.map(({phase, text}) => {
    tracks[phase] = h("div.track", {"aria-hidden": "true"});
    return h("div.lane", {"data-phase": phase},
      h("button", {"aria-pressed": String(phase === onlyPhase), onclick: () => togglePhase(phase)},
        phase, h("span", null, text)),
      tracks[phase]);
  }));
  steps.forEach((step, index) => {
    const [left, width] = placing.places[index];
    blocks[index] = h(step === hottest ? "i.hot" : isNumber(step.ns) ? "i" : "i.untimed", {
      "data-step": index, title: `${step.label || ""}: ${timeOf(step)}`,
      style: {left: `min(${percent(left)}, 100% - 2px)`, width: percent(width)},
    });
    tracks[phaseOf(step)].append(blocks[index]);
    if (index && severalOps && opOf(step) !== opOf(steps[index - 1]) && opNumbers.length < 40)
      for (const phase of phases) tracks[phase].append(h("u", {style: {left: percent(left)}}));
  });
  $("lanes").append(h("div.lane", {"aria-hidden": "true"}, h("div.axis", null, marks(placing).map(([share, text]) =>
    h(share < 0.04 ? "span.start" : share > 0.93 ? "span.end" : "span", {style: {left: percent(share)}}, text)))));
  $("timeline-note").textContent = !timed.length ? "not timed: steps in order"
    : scale === "log" ? "steps in order, widths by the logarithm of the time" : "steps in order, widths by time";
  for (const button of document.querySelectorAll("[data-scale]"))
    button.setAttribute("aria-pressed", String(button.dataset.scale === scale));
  document.querySelector(".segmented").hidden = !timed.length;
  if (blocks[current]) blocks[current].classList.add("on");
}

function togglePhase(phase) {
  onlyPhase = onlyPhase === phase ? null : phase;
  for (const button of $("lanes").querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(button.parentNode.dataset.phase === onlyPhase));
  filter();
}

function clearFilter() {
  $("search").value = "";
  $("search").blur();
  togglePhase(onlyPhase);
}

function setScale(value) { scale = value; drawTimeline(); }

// ---------------- Sequence diagram

const rows = [], headings = [];
let current = -1, narrow = false;

function drawSteps() {
  const columns = participants.length;
  $("who").style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  $("who").append(...participants.map(name => h("span", null, breakable(name))));
  $("steps").style.setProperty("--lifelines", participants.map((_, index) =>
    `linear-gradient(var(--line) 0 0) ${(index + 0.5) / columns * 100}% 0 / 1px 100% no-repeat`).join(", "));
  const longest = Math.log10(1 + (hottest ? hottest.ns : 1)), seen = new Set();
  const outer = [];  // the operation last seen at each depth
  let phase = null, op = null;
  const made = document.createDocumentFragment();
  steps.forEach((step, index) => {
    const number = opOf(step);
    if (severalOps && number !== op) {
      const element = opHeading(number, depthOf(step), outer[depthOf(step) - 1], seen.has(number));
      headings.push({first: index, element});
      made.append(element);
      seen.add(number);
      phase = null;
    }
    rows[index] = stepRow(step, index, phaseOf(step) !== phase, columns, longest);
    made.append(rows[index]);
    phase = phaseOf(step);
    op = outer[depthOf(step)] = number;
  });
  $("steps").append(made);
  const key = {"request.right": "request", "return.left": "return", "lazy.right": "recorded, runs later",
               "guard.right": "check", self: "own work"};
  $("key").append(...Object.entries(key).filter(([style]) => steps.some(step => step.kind === style.split(".")[0]))
    .map(([style, text]) => h("span", null, h(`i.arrow.${style}`), text)));
}

function opHeading(number, depth, caller, again) {
  const op = ops[number] || {};
  return h(depth ? "li.op.nested" : "li.op", {"--depth": depth}, h("h3", null, opName(number)),
    again ? h("span.dim", null, "continued") : [
      h("span.dim", null,
        joined([caller !== undefined && `inside ${opName(caller)}`, op.where, op.result && tensor(op.result)])),
      isNumber(op.total_ns) ? h("span.total", null, duration(op.total_ns)) : null]);
}

function stepRow(step, index, firstOfPhase, columns, longest) {
  const a = from(step), b = to(step), self = a === b, phase = phaseOf(step);
  const left = (Math.min(a, b) + 0.5) / columns, span = Math.abs(a - b) / columns;
  const log = isNumber(step.ns) ? Math.log10(1 + step.ns) / longest : 0;
  const kind = ["guard", "lazy", "return"].includes(step.kind) ? step.kind : "request";
  const row = `li${step === hottest ? ".hot" : ""}${depthOf(step) ? ".nested" : ""}`;
  return h(row, {"data-phase": phase, "--depth": depthOf(step)},
    h("button.row", {
      "data-step": index, tabindex: -1,
      "aria-label": `Step ${index + 1} of ${steps.length}, ${phase}, ${routeOf(step, " to ")}: ` +
                    `${step.label || ""}, ${timeOf(step)}`,
    },
      h("span.phase", null, firstOfPhase ? phase : ""),
      h("span.lanes", null,
        h("span.label", {"--middle": left + span / 2}, step.label || step.kind || "step"),
        h("span.route", null, routeOf(step)),
        h(`span.arrow.${kind}.${self ? "self" : b > a ? "right" : "left"}`,
          {"--left": `${left * 100}%`, "--span": `${span * 100}%`})),
      h("span.time", null, timeOf(step), log ? h("i", {"--log": `${Math.max(4, log * 100)}%`}) : null)));
}

/** A column needs room for a name; with less, the steps become a list. */
function fit() {
  const width = $("diagram").clientWidth;
  narrow = width < 560 || (width - 180) / participants.length < 62;
  $("diagram").classList.toggle("narrow", narrow);
  $("aside").hidden = narrow || !steps.length;
  $("main").classList.toggle("one-column", $("aside").hidden);
  for (const graph of document.querySelectorAll(".graph")) {
    // A plan may be wider than its card and move within it, but on a narrow screen it is a list.
    const needs = graph.firstChild.getAttribute("width");
    graph.classList.toggle("tight", graph.clientWidth < (graph.matches(".plan") ? Math.min(needs, 560) : needs));
  }
  placePanel();
}

function placePanel() {
  const home = narrow && rows[current] || $("aside");
  if ($("panel").parentNode === home) return;
  home.append($("panel"));
  $("panel").hidden = false;
}

// ---------------- Selection and details

function select(index, {focus = false, scroll = false} = {}) {
  const step = steps[index];
  if (!step) return;
  if (rows[current]) {
    rows[current].classList.remove("on");
    rows[current].firstChild.tabIndex = -1;
    rows[current].firstChild.removeAttribute("aria-current");
    blocks[current].classList.remove("on");
  }
  current = index;
  rows[index].classList.add("on");
  blocks[index].classList.add("on");
  const row = rows[index].firstChild;
  row.tabIndex = 0;
  row.setAttribute("aria-current", "step");
  fillPanel(step);
  $("panel").hidden = false;
  placePanel();
  if (focus) row.focus({preventScroll: true});
  if (scroll) {
    // The heading of the diagram is sticky and would hide a row that scrollIntoView puts under it.
    const box = row.getBoundingClientRect(), top = $("who").offsetHeight + 4;
    if (box.top < top) scrollBy(0, box.top - top);
    else if (box.bottom > innerHeight - 4) scrollBy(0, box.bottom - innerHeight + 4);
  }
}

const sourcesOf = step => [...[].concat(step.source || []), ...planTexts(trace, step)]
  .filter(source => source.text || source.file);
const hasCode = step => sourcesOf(step).some(source => source.text) || Boolean(step.assembly);

function fillPanel(step) {
  const facts = factsOf(step).map(([key, value]) => [h("dt", null, key), h("dd", null, show(value))]);
  const timing = step.below_resolution ? "below the resolution of the clock"
    : !isNumber(step.ns) ? "the function was run once"
    : trace.total_ns > 0 && `${share(step.ns / trace.total_ns)} of the whole`;
  $("panel").dataset.phase = phaseOf(step);
  $("panel").replaceChildren(
    h("div.kicker", null,
      joined([phaseOf(step), severalOps && opName(opOf(step)), `step ${current + 1} of ${steps.length}`])),
    h("h2", null, step.label || step.kind || "step"),
    h("div.dim", {style: {fontSize: "13px"}}, joined([routeOf(step), timeOf(step), timing])),
    ...(facts.length ? [h("dl", null, facts)] : []),
    ...(step.why ? [h("p.why", null, step.why)] : []),
    ...codeBlocks(step),
    ...(hasCode(step) ? [h("button.small-button", {onclick: openCode}, "Open large ", h("kbd", null, "Enter"))] : []),
    h("p.hint", null, [["↑ ↓", " steps · "], ["/", " search · "], ["?", " keys"]].map(([key, text]) =>
      [h("kbd", null, key), text])));
}

function codeBlocks(step) {
  const made = sourcesOf(step).map(({file, line, first_line: first, language, text, name = "Source"}) =>
    codeBlock(name, [file, line].filter(part => part !== undefined && part !== null).join(":") || language || "",
              text ? code(text, language || "cpp", name, first ?? line ?? 1, line) : null));
  if (step.assembly)
    made.push(codeBlock("Machine code", machine.isa || "", code(step.assembly, "assembly", "Machine code")));
  return made;
}

function openCode() {
  const step = steps[current];
  if (step) openDialog(step.label || "step", hasCode(step) ? codeBlocks(step) : [],
                       "The record holds no source and no machine code for this step.");
}

// ---------------- Search

const haystacks = [];
function haystack(index) {
  const step = steps[index];
  return haystacks[index] ??= joined([
    phaseOf(step), step.label, step.kind, routeOf(step), step.why, severalOps && opName(opOf(step)), show(step.facts),
    ...sourcesOf(step).map(source => source.file),
  ], "\n").toLowerCase();
}

function filter() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const visible = steps.map((step, index) =>
    (!onlyPhase || phaseOf(step) === onlyPhase) && words.every(word => haystack(index).includes(word)));
  rows.forEach((row, index) => { row.hidden = !visible[index]; });
  headings.forEach(({first, element}, index) => {
    element.hidden = !visible.slice(first, (headings[index + 1] || {}).first).includes(true);
  });
  const shown = visible.filter(Boolean).length;
  $("nothing").hidden = shown > 0;
  $("count").textContent = (shown < steps.length ? `${shown} of ` : "") + plural(steps.length, "step");
  if (shown && !visible[current]) select(visible.indexOf(true));
}

/** Goes to the next visible step in a direction, or to the first or last one. */
function move(direction, toEnd) {
  let next = toEnd ? (direction > 0 ? 0 : steps.length - 1) : current + direction;
  while (rows[next] && rows[next].hidden) next += direction;
  if (rows[next]) select(next, {focus: true, scroll: true});
}

// ---------------- Kernels, memory, operations

function jumpTo(index) {
  if (rows[index].hidden) clearFilter();
  select(index, {focus: true});
  rows[index].scrollIntoView({block: "center"});
}

/** A bar of `value` with a mark at `mark`, both on one scale. */
function measure(name, value, mark, text) {
  const whole = Math.max(value, mark || 0) * 1.05 || 1, percent = part => `${(part / whole * 100).toFixed(2)}%`;
  return h("div.measure", null, h("span", null, name),
    h("span.meter", {"aria-hidden": "true"},
      h("i", {style: {width: percent(value)}}), isNumber(mark) ? h("u", {style: {left: percent(mark)}}) : null),
    h("small", null, text));
}

function kernelMeasures({bytes_moved: moved, bytes_least: least, gb_per_s: rate, operations, ns, ceiling: own}) {
  const limit = (own || {}).gb_per_s, parts = [];
  if (isNumber(rate))
    parts.push(measure("bandwidth", rate, limit, !isNumber(limit) ? `${significant(rate)} GB/s`
      : `${significant(rate)} of ${significant(limit)} GB/s, ${Math.round(rate / limit * 100)} % of ${own.name}`));
  if (isNumber(moved))
    parts.push(measure("bytes", moved, least, joined([
      `${bytes(moved)} moved`, isNumber(least) && `${bytes(least)} least possible`,
      least && `${(moved / least).toFixed(2)}\u00a0×`], ", ")));
  if (isNumber(operations) && ns > 0)
    parts.push(h("p.verdict", null, `${duration(ns)}; `, h("b", null, `${significant(operations / ns)} GFLOP/s`)));
  if (isNumber(rate) && least > 0 && limit > 0 && ns > 0) {
    const ideal = least / limit;  // bytes over GB/s are nanoseconds
    const verdict = ns < ideal ? "faster than the ceiling, the data was in a cache"
      : `${(ns / ideal).toFixed(2)}\u00a0× the least possible time`;
    parts.push(h("p.verdict", null,
      `${duration(ns)}; the least bytes at the ceiling take ${duration(ideal)}: `, h("b", null, verdict)));
  }
  return parts;
}

function kernelCard() {
  const measured = kernels.filter(step => isNumber(step.bytes_moved) || isNumber(step.operations))
    .sort((a, b) => (b.ns || 0) - (a.ns || 0));
  if (!measured.length) return null;
  const items = measured.slice(0, 6).map(step => h("div.kernel", null,
    h("button.link", {onclick: () => jumpTo(steps.indexOf(step))}, step.label || "kernel"), kernelMeasures(step)));
  const note = joined([
    measured.some(step => step.ceiling) &&
      "The line marks the ceiling measured on this machine, and the least possible bytes.",
    measured.length > items.length && `The longest ${items.length} of ${measured.length}.`], " ");
  const several = items.length > 1;
  return card("kernels", several ? "Kernels against the machine" : "Kernel against the machine", note, several,
    h("div.kernels", null, items));
}

function memoryCard() {
  const size = value => isNumber(value) && bytes(value, 1024), count = value => isNumber(value) && String(value);
  const {pool_hits: hits = 0, pool_misses: misses = 0} = memory, asked = hits + misses;
  const figures = [
    ["allocated", size(memory.allocated_bytes)], ["peak", size(memory.peak_bytes)],
    ["pool hits", count(memory.pool_hits)], ["pool misses", count(memory.pool_misses)],
  ].filter(([, text]) => text);
  if (!figures.length) return null;
  return card("memory", "Memory", "Blocks and bytes that this call took.", false,
    h("dl.figures", null, figures.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)))),
    asked ? measure("pool", hits, asked, `${hits} of ${plural(asked, "block")} without asking the system`) : null);
}

function opsCard() {
  const body = opNumbers.map(number => {
    const op = ops[number] || {}, first = steps.findIndex(step => opOf(step) === number), depth = depthOf(steps[first]);
    return h("tr", null,
      h("td", {style: {paddingLeft: `${depth * 14}px`}},
        h("button.link", {onclick: () => jumpTo(first)}, opName(number)),
        depth ? h("span.dim", null, " (nested)") : null),
      h("td", null, op.where), h("td", null, op.result ? tensor(op.result) : null),
      h("td.number", null, isNumber(op.total_ns) ? duration(op.total_ns) : null));
  });
  const head = ["operation", "where", "result"].map(name => h("th", {scope: "col"}, name));
  return card("operations", "Operations", "", false,
    h("div.table", {tabindex: 0, role: "region", "aria-label": "Operations"}, h("table", null,
      h("thead", null, h("tr", null, head, h("th.number", {scope: "col"}, "time"))), h("tbody", null, body))));
}

// ---------------- Autograd graph

function graphCard() {
  const graph = trace.graph || {}, all = list(graph.nodes), limit = 200;
  if (!all.length) return null;
  const nodes = all.slice(0, limit).map(node => {
    const name = String(node.name ?? node.id);
    const saved = show(node.saved ?? "");
    const notes = [...(node.where ? wrap(node.where) : []), ...(saved ? wrap(`saved: ${saved}`) : [])];
    const width = Math.max(textWidth(name, 12, 600), ...notes.map(note => textWidth(note, 11))) + 26;
    return {id: node.id, name, notes, width, height: 30 + notes.length * 15, out: [], near: []};
  });
  const byId = new Map(nodes.map(node => [node.id, node]));
  const edges = list(graph.edges).map(([a, b, label]) => ({from: byId.get(a), to: byId.get(b), label: label ?? ""}))
    .filter(edge => edge.from && edge.to && edge.from !== edge.to);
  for (const edge of edges) edge.from.out.push(edge);
  const made = layers(nodes, edges);
  spread(made);
  const size = stack(made, 54);
  const note = all.length > limit ? `The first ${limit} of ${all.length} nodes; the JSON holds all.`
    : "What backward() will walk, from the result down to the leaves.";
  return card("graph", "Autograd graph after the call", note, true,
    h("div.graph", {tabindex: 0, role: "region", "aria-label": "Autograd graph"},
      drawing(size, edges.map(edge => h("path", {d: edgePath(edge), "marker-end": "url(#head)"})),
              nodes.map(drawNode), placeLabels(edges, nodes)),
      graphList(made)));
}

// ---------------- Footer, keys, start

function drawFooter() {
  const {events, ns_per_event: each, subtracted_ns: subtracted, runs, calls, note} = recorder;
  $("foot").textContent = joined([
    isNumber(events) && joined([`Recorder: ${plural(events, "event")}`, isNumber(each) && ` at ${each} ns each`,
                                isNumber(subtracted) && `, ${duration(subtracted)} subtracted`, "."], ""),
    isNumber(runs) && runs > 1 && `Times are medians of ${runs} runs.`,
    isNumber(calls) && calls > 0 && `The function was called ${calls === 1 ? "once" : `${calls.toLocaleString("en")} times`}.`,
    note && `${String(note)[0].toUpperCase()}${String(note).slice(1)}.`,
    isNumber(ceiling.gb_per_s) && `Ceiling measured on this machine: ${ceiling.gb_per_s} GB/s`
      + `${ceiling.name ? ` (${ceiling.name})` : ""}.`,
    trace.schema && `Record: ${trace.schema}.`,
  ], " ");
}

function download() {
  const address = URL.createObjectURL(new Blob([JSON.stringify(trace, null, 2) + "\n"], {type: "application/json"}));
  const name = (String(trace.expression || "").match(/\w+/g) || ["trace"]).join("_").slice(0, 60);
  h("a", {href: address, download: `${name}.json`}).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target.closest ? event.target : document.body, searching = target === $("search");
  const own = target.closest("pre, .graph, .table");
  const keys = {
    ArrowDown: () => move(1), ArrowUp: () => move(-1), Escape: clearFilter,
    ...(searching ? {Enter: openCode} : {
      Home: () => move(1, true), End: () => move(-1, true),
      "/": () => $("search").focus(), "?": () => $("help").showModal(),
      s: () => setScale(scale === "log" ? "linear" : "log"),
      ...(target === document.body || target.closest(".row") ? {Enter: openCode} : {}),
    }),
  };
  if (!keys[event.key] || own && /^(Arrow|Home|End)/.test(event.key)) return;
  event.preventDefault();
  keys[event.key]();
}

drawHeader();
drawSteps();
drawTimeline();
const cards = [...(severalOps ? [opsCard(), memoryCard(), kernelCard()] : [kernelCard(), memoryCard()]),
               ...planCards(trace), graphCard()]
  .filter(Boolean);
$("cards").append(...cards);
$("jump").append(...["timeline", "steps", ...cards.map(made => made.id)].map(id =>
  h("a", {href: `#${id}`}, id[0].toUpperCase() + id.slice(1))));
drawFooter();
fit();
filter();
if (steps.length) select(hottest ? steps.indexOf(hottest) : 0);
new ResizeObserver(fit).observe($("diagram"));

$("steps").addEventListener("click", event => {
  const row = event.target.closest(".row");
  if (!row) return;
  const index = Number(row.dataset.step);
  if (narrow && index === current) $("panel").hidden = !$("panel").hidden;
  else select(index);
});
$("lanes").addEventListener("click", event => {
  if (event.target.dataset.step) jumpTo(Number(event.target.dataset.step));
});
document.querySelector(".segmented").addEventListener("click", event => {
  if (event.target.dataset.scale) setScale(event.target.dataset.scale);
});
$("search").addEventListener("input", filter);
$("download").addEventListener("click", download);
$("help-button").addEventListener("click", () => $("help").showModal());
addEventListener("keydown", pressed);

})();
