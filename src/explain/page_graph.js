// ---------------- Drawing graphs


const pen = document.createElement("canvas").getContext("2d");
function textWidth(text, size, weight = 400) {
  pen.font = `${weight} ${size}px ${getComputedStyle(document.documentElement).getPropertyValue("--mono")}`;
  return pen.measureText(text).width;
}

/** Breaks a text into lines of at most `width` characters. */
function wrap(text, width = 34) {
  const lines = [""];
  for (const word of String(text).split(" ").flatMap(part => part.match(new RegExp(`.{1,${width}}`, "g")) || [])) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= width) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines.filter(Boolean);
}

/** Puts nodes in layers by their longest path from a root, and a bend in each layer that an edge crosses. */
function layers(nodes, edges) {
  const waiting = new Map(nodes.map(node => [node, 0]));
  for (const edge of edges) waiting.set(edge.to, waiting.get(edge.to) + 1);
  const ready = nodes.filter(node => !waiting.get(node));
  for (const node of nodes) node.layer = 0;
  for (let node; (node = ready.shift());)
    for (const edge of node.out) {
      edge.to.layer = Math.max(edge.to.layer, node.layer + 1);
      waiting.set(edge.to, waiting.get(edge.to) - 1);
      if (!waiting.get(edge.to)) ready.push(edge.to);
    }
  const made = [];
  for (const node of nodes) (made[node.layer] ??= []).push(node);
  for (const edge of edges) {
    edge.path = [edge.from];
    for (let layer = edge.from.layer + 1; layer < edge.to.layer; ++layer) {
      const bend = {width: 14, height: 0, layer, near: []};
      made[layer].push(bend);
      edge.path.push(bend);
    }
    edge.path.push(edge.to);
    for (let index = 1; index < edge.path.length; ++index) {
      edge.path[index - 1].near.push(edge.path[index]);
      edge.path[index].near.push(edge.path[index - 1]);
    }
  }
  return made.filter(Boolean);
}

/** Gives each node an x near the mean of its neighbours, with no two of a layer closer than `gap`. */
function spread(made, gap = 34) {
  const mean = (node, fallback) => node.near.length ? sum(node.near, other => other.x) / node.near.length : fallback;
  for (const layer of made) layer.reduce((x, node) => { node.x = x + node.width / 2; return x + node.width + gap; }, 0);
  for (let round = 0; round < 8; ++round) {
    for (const layer of round % 2 ? [...made].reverse() : made) {
      layer.forEach(node => { node.wish = mean(node, node.x); });
      layer.sort((a, b) => a.wish - b.wish);
      let edge = -Infinity;
      for (const node of layer) {
        node.x = Math.max(node.wish, edge + node.width / 2);
        edge = node.x + node.width / 2 + gap;
      }
      const shift = sum(layer, node => node.wish - node.x) / layer.length;
      for (const node of layer) node.x += shift;
    }
  }
}

/** Layers below each other; gives the drawing's left edge, width and height. */
function stack(made, gap) {
  let y = 8;
  for (const layer of made) {
    const height = Math.max(...layer.map(node => node.height));
    for (const node of layer) { node.y = y; node.middle = node.height ? y : y + height / 2; }
    y += height + gap;
  }
  const flat = made.flat(), left = Math.min(...flat.map(node => node.x - node.width / 2)) - 10;
  return {left, width: Math.max(...flat.map(node => node.x + node.width / 2)) + 10 - left, height: y - gap + 8};
}

/** A drawing that fits a size, with the head of its arrows. */
function drawing({left, width, height}, ...content) {
  return h("svg", {width, height, viewBox: `${left} 0 ${width} ${height}`},
    h("marker", {id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto"},
      h("path", {d: "M0 0 8 4 0 8z"})),
    content);
}

/** The same graph as a list, for a screen too narrow for the drawing and for a screen reader. */
function graphList(made) {
  return h("ul", null, made.flat().filter(node => node.name).map(node => h("li", null,
    h("b", null, node.name), node.notes.map(note => h("div.dim", null, note)),
    node.out.map(edge => h("div", null, `→ ${joined([edge.to.name, edge.to.notes[0], edge.label])}`)))));
}

function edgePath({path}) {
  const points = path.map((node, index) => [node.x, index === 0 ? node.y + node.height : node.middle]);
  return points.slice(1).reduce((made, [x, y], index) => {
    const [px, py] = points[index], half = (y - py) / 2;
    return `${made}C${px} ${py + half} ${x} ${y - half} ${x} ${y}`;
  }, `M${points[0].join(" ")}`);
}

function drawNode(node) {
  const x = node.x - node.width / 2;
  return h(node.out.length ? "g" : "g.leaf", null,
    h("rect", {x, y: node.y, width: node.width, height: node.height, rx: 8}),
    h("text.name", {x: node.x, y: node.y + 19, "text-anchor": "middle"}, node.name),
    node.notes.map((note, index) =>
      h("text.note", {x: node.x, y: node.y + 35 + index * 15, "text-anchor": "middle"}, note)));
}

/** Puts each edge's label where it touches no node and no earlier label. */
function placeLabels(edges, nodes) {
  const taken = nodes.map(node => [node.x - node.width / 2, node.y, node.x + node.width / 2, node.y + node.height]);
  return edges.filter(edge => edge.label !== "").map(edge => {
    const [a, b] = edge.path.length > 2 ? edge.path.slice(-2) : [edge.from, edge.to];
    const ay = a.height ? a.y + a.height : a.middle, width = textWidth(edge.label, 11) + 6;
    const at = share => {
      const ease = share * share * (3 - 2 * share), x = a.x + (b.x - a.x) * ease, y = ay + (b.middle - ay) * share;
      return [x - width / 2, y - 7, x + width / 2, y + 7];
    };
    const free = ([left, top, right, bottom]) =>
      taken.every(([l, t, r, b]) => right < l || r < left || bottom < t || b < top);
    const box = [0.5, 0.62, 0.38, 0.74, 0.26].map(at).find(free) || at(0.5);
    taken.push(box);
    return [h("rect.gap", {x: box[0], y: box[1], width, height: 14}),
            h("text.edge-label", {x: box[0] + width / 2, y: box[3] - 3, "text-anchor": "middle"}, edge.label)];
  });
}
