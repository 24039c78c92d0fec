// ---------------- Plans: ops in kernels, from what is read to what is given

/** The steps of a trace in which a kernel of a plan ran. */
const stepsOf = (trace, plan, kernel) =>
  list(trace.steps).filter(step => step.plan === plan && step.plan_kernel === kernel);

/** What it took: on the device where that told, else here. */
function kernelTime(trace, plan, kernel) {
  const own = stepsOf(trace, plan, kernel);
  const device = own.filter(step => isNumber(step.device_ns));
  if (device.length) return `${duration(sum(device, step => step.device_ns))} on the device`;
  return own.length && own.every(step => isNumber(step.ns)) ? duration(sum(own, step => step.ns)) : "";
}

const languages = {llvm: "LLVM", opencl: "OpenCL C"};

/** The texts of a step: of the kernel of its plan, and of what a device was asked to run. */
function planTexts(trace, step) {
  const plan = list(trace.plans)[step.plan], kernel = plan && list(plan.kernels)[step.plan_kernel];
  if (!kernel || step.facts?.kernel === undefined) return [];
  const texts = kernel.fused ? [{name: "Ops", language: "python", text: kernel.source}] : [];
  if (kernel.generated)
    texts.push({name: "Generated", language: kernel.language, file: languages[kernel.language], text: kernel.generated});
  if (kernel.assembly) texts.push({name: "Machine code", language: "assembly", text: kernel.assembly});
  for (const text of new Set(list(step.launches).map(launch => list(trace.texts)[launch.text])))
    if (text && text !== kernel.generated) texts.push({name: "Kernel", language: "opencl", file: "OpenCL C", text});
  return texts;
}

/** What is to be said of a kernel, a line each. */
function kernelNotes(trace, plan, index) {
  const kernel = list(trace.plans)[plan].kernels[index];
  const made = kernel.from_disk === kernel.functions ? "read from disk" : "compiled";
  const launches = stepsOf(trace, plan, index).flatMap(step => list(step.launches));
  return [
    joined([kernel.fused ? kernel.language === "opencl" ? "generated" : `tier ${kernel.tier}` : "a call",
            kernelTime(trace, plan, index)]),
    `${bytes(kernel.bytes_read)} read, ${bytes(kernel.bytes_written)} written`,
    ...launches.map(({name, items, group, device_ns: ns}) => joined([
      `${name}: ${plural(items, "item")}${group ? ` in groups of ${group}` : ""}`,
      launches.length > 1 && isNumber(ns) && duration(ns)], ", ")),
    kernel.generated && isNumber(kernel.compile_ns) && `${plural(kernel.functions, "function")} ${made} in ${duration(kernel.compile_ns)}`,
    kernel.why_tier && `tier 0: ${kernel.why_tier}`,
    `its own kernel: ${kernel.reason}`,
  ].filter(Boolean);
}

function openKernel(trace, plan, index) {
  const seen = new Set();
  const texts = stepsOf(trace, plan, index).flatMap(step => planTexts(trace, step)).filter(({text}) => {
    const fresh = !seen.has(text);
    seen.add(text);
    return fresh;
  });
  openDialog(`kernel ${index + 1}: ${list(trace.plans)[plan].kernels[index].name}`, [
    h("div", null, h("ul.notes", null, kernelNotes(trace, plan, index).map(note => h("li", null, note)))),
    ...texts.map(({name, language, file, text}) => codeBlock(name, file || "", code(text, language, name, 1))),
  ], "");
}

const mostNodes = 120;  // of a plan whose ops are drawn; of a larger one only the kernels are

/** Boxes of a plan: each kernel with its ops laid out inside, and the memory that was there before. */
function planBoxes(trace, plan, index) {
  const nodes = list(plan.nodes).map(node => ({kernel: -1, ...node})), detailed = nodes.length <= mostNodes;
  const box = (name, notes) => ({
    name, notes, out: [], near: [],
    width: Math.max(textWidth(name, 12, 600), ...notes.map(note => textWidth(note, 11))) + 26,
    height: 30 + notes.length * 15,
  });
  const ops = nodes.map(node => box(node.name, detailed ? [node.makes, node.given && "a result"].filter(Boolean) : []));
  const kernels = list(plan.kernels).map((kernel, number) => {
    const own = nodes.flatMap((node, place) => node.kernel === number ? [place] : []);
    const title = `kernel ${number + 1}`, notes = kernelNotes(trace, index, number).slice(0, 2);
    const made = {...box(title, notes), kernel: number, inner: [], edges: [], top: 30 + notes.length * 15};
    if (!detailed) made.notes = [...wrap(kernel.name).slice(0, 2), ...notes];
    if (!detailed || !own.length) return Object.assign(made, box(title, made.notes), {kernel: number, inner: [], edges: []});
    for (const place of own)
      for (const source of new Set(nodes[place].from))
        if (nodes[source].kernel === number) {
          const edge = {from: ops[source], to: ops[place], label: ""};
          made.edges.push(edge);
          ops[source].out.push(edge);
        }
    const inner = layers(own.map(place => ops[place]), made.edges);
    spread(inner, 22);
    const size = stack(inner, 26);
    made.inner = own.map(place => ops[place]);
    made.size = size;
    made.width = Math.max(made.width, size.width + 12);
    made.height = made.top + size.height + 4;
    return made;
  });
  return {nodes, ops, kernels};
}

/** Edges between boxes, each labelled with what lies in memory between them. */
function planEdges({nodes, ops, kernels}) {
  const boxOf = place => nodes[place].kernel >= 0 ? kernels[nodes[place].kernel] : ops[place];
  const between = new Map();
  nodes.forEach((node, place) => {
    for (const source of node.from) {
      const from = boxOf(source), to = boxOf(place);
      if (from === to) continue;
      const key = `${nodes[source].kernel >= 0 ? `k${nodes[source].kernel}` : `m${source}`} ${node.kernel}`;
      if (!between.has(key)) between.set(key, {from, to, sources: new Set()});
      between.get(key).sources.add(source);
    }
  });
  return [...between.values()].map(({from, to, sources}) => {
    const [first] = sources;
    const label = nodes[first].kernel < 0 ? "" : sources.size > 1 ? `${sources.size} values` : nodes[first].makes;
    const edge = {from, to, label};
    from.out.push(edge);
    return edge;
  });
}

/** A kernel's box, which opens to its texts. */
function drawKernel(trace, plan, made) {
  const x = made.x - made.width / 2, open = () => openKernel(trace, plan, made.kernel);
  const inside = made.inner.length
    ? h("g", {transform: `translate(${made.x - (made.size.left + made.size.width / 2)} ${made.y + made.top - 4})`},
        made.edges.map(edge => h("path", {d: edgePath(edge), "marker-end": "url(#head)"})), made.inner.map(drawOp))
    : null;
  return h("g.kernel-box", {tabindex: 0, role: "button", "aria-label": `${made.name}: its texts`, onclick: open,
                            onkeydown: event => { if (event.key === "Enter") { event.stopPropagation(); open(); } }},
    h("rect", {x, y: made.y, width: made.width, height: made.height, rx: 10}),
    h("text.name", {x: made.x, y: made.y + 19, "text-anchor": "middle"}, made.name),
    made.notes.map((note, index) =>
      h("text.note", {x: made.x, y: made.y + 35 + index * 15, "text-anchor": "middle"}, note)),
    inside);
}

const drawOp = node => {
  const drawn = drawNode({...node, out: [0]});
  if (node.notes.includes("a result")) drawn.classList.add("given");
  return drawn;
};

/** The plan as a list, for a narrow screen and a screen reader. */
function planList(trace, plan, index) {
  return h("ul", null, list(plan.kernels).map((kernel, number) => h("li", null,
    h("button.link", {onclick: () => openKernel(trace, index, number)}, `kernel ${number + 1}: ${kernel.name}`),
    kernelNotes(trace, index, number).map(note => h("div.dim", null, note)))));
}

function planCards(trace) {
  const most = 6, plans = list(trace.plans);
  return plans.slice(0, most).map((plan, index) => {
    const made = planBoxes(trace, plan, index), edges = planEdges(made);
    const memory = made.ops.filter((_, place) => made.nodes[place].kernel < 0);
    const boxes = [...memory, ...made.kernels];
    const placed = layers(boxes, edges);
    spread(placed);
    const size = stack(placed, 50);
    const more = index === most - 1 && plans.length > most ? ` The first ${most} of ${plans.length} plans.` : "";
    const name = plans.length > 1 ? `Plan ${index + 1}: ${plan.name}` : `Plan of ${plan.name}`;
    return card(plans.length > 1 ? `plan-${index + 1}` : "plan", name, `${plan.text}.${more}`, true,
      h("div.graph.plan", {tabindex: 0, role: "region", "aria-label": name},
        drawing(size, edges.map(edge => h("path", {d: edgePath(edge), "marker-end": "url(#head)"})),
                memory.map(node => drawNode({...node, out: []})),
                made.kernels.map(kernel => drawKernel(trace, index, kernel)), placeLabels(edges, boxes)),
        planList(trace, plan, index)));
  });
}
