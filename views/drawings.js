// Drawings of a run: a step's tree, acceptance by depth, the time line of model calls, a canvas as position by step.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const MOST_NODES = 240; // of a tree that are drawn; the path that was accepted always is

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  return dress(element, attributes, children);
}

function draw(name, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, name), attributes, children);
}

function dress(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
  for (const child of children) element.append(child); // strings become text nodes: no token is read as HTML
  return element;
}

function visible(text, most = 14) { // spaces that HTML would collapse or nobody would see are shown
  const shown = text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$| {2,}|(?<=[⏎⇥]) | (?=[⏎⇥])/g, (s) => "␣".repeat(s.length));
  return shown.length > most ? shown.slice(0, most - 1) + "…" : shown || "∅";
}

function quoted(text) { return `"${visible(text, 60)}"`; }

function several(n, noun) { return `${n} ${noun}${n === 1 ? "" : "s"}`; }

function number(x, digits = 3) {
  if (x === null || x === undefined) return "";
  return x !== 0 && Math.abs(x) < 0.001 ? x.toExponential(1) : String(Number(x.toFixed(digits)));
}

function why(node) {
  const [, , state, p, q, , source, reason] = node;
  if (state === "rejected" && p !== null)
    return `rejected: ${reason}; the verifier gives it ${number(p)}${q !== null ? `, the distribution it was drawn from ${number(q)}` : ""}`;
  if (state === "rejected") return `rejected: ${reason}`;
  if (state === "accepted") return "accepted";
  if (state === "omitted") return "drafted tokens between the context and this branch, not drawn";
  if (state === "emitted") return { bonus: "bonus: after the last accepted draft", residual: "residual: in place of rejected drafts" }[source] || "no draft was verified before it";
  return state === "pruned" ? "pruned before verification" : "drafted, not reached by verification";
}

function chosen(node) { // a draft without a draw, as topk makes it
  return node[2] !== "emitted" && node[2] !== "omitted" && node[4] === null;
}

function chosenSaid(score) { return `chosen, not drawn${score !== null && score !== undefined ? ` (its drafter gave it ${number(score)})` : ""}`; }

function shownNodes(nodes) {
  if (nodes.length <= MOST_NODES) return nodes.map((_, i) => i);
  const kept = new Set();
  nodes.forEach((node, i) => {
    if (node[2] !== "drafted" && node[2] !== "pruned") for (let n = i; n >= 0 && !kept.has(n); n = nodes[n][1]) kept.add(n);
  });
  for (let i = 0; i < nodes.length && kept.size < MOST_NODES; i++) if (nodes[i][1] < 0 || kept.has(nodes[i][1])) kept.add(i);
  return [...kept].sort((a, b) => a - b);
}

function treeDrawing(nodes, pieces, root) {
  const shown = shownNodes(nodes);
  const below = new Map([[-1, []]]);
  for (const i of shown) {
    below.set(i, []);
    below.get(below.has(nodes[i][1]) ? nodes[i][1] : -1).push(i);
  }
  const WIDE = 128, HIGH = 38;
  const place = new Map();
  let row = 0, deepest = 0;
  const todo = [[-1, 0, false]];
  while (todo.length) { // leaves get rows from top to bottom, a parent the middle of its children
    const [i, depth, done] = todo.pop();
    deepest = Math.max(deepest, depth);
    const children = below.get(i);
    if (!children.length) place.set(i, [depth, row++]);
    else if (done) place.set(i, [depth, (place.get(children[0])[1] + place.get(children[children.length - 1])[1]) / 2]);
    else {
      todo.push([i, depth, true]);
      for (const child of [...children].reverse()) todo.push([child, depth + 1, false]);
    }
  }
  const width = (deepest + 1) * WIDE + 8, height = Math.max(1, row) * HIGH + 6;
  const counted = nodes.reduce((n, node) => ((n[node[2]] = (n[node[2]] || 0) + 1), n), {});
  const said = Object.entries(counted).map(([state, n]) => `${n} ${state}`).join(", ");
  const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Draft tree: ${said}` });
  const at = (i) => [place.get(i)[0] * WIDE + 4, place.get(i)[1] * HIGH + 3];
  for (const [parent, children] of below)
    for (const i of children) {
      const [x1, y1] = at(parent), [x2, y2] = at(i);
      const state = nodes[i][2] === "accepted" ? " accepted" : "";
      svg.append(draw("path", { class: "edge" + state, d: `M${x1 + 108} ${y1 + 11} C${x1 + 119} ${y1 + 11} ${x2 - 10} ${y2 + 11} ${x2} ${y2 + 11}` }));
    }
  for (const i of [-1, ...shown]) {
    const [x, y] = at(i);
    const node = i < 0 ? null : nodes[i];
    const omitted = node !== null && node[2] === "omitted";
    const text = omitted ? "…" : node ? pieces[node[0]] ?? `<${node[0]}>` : root;
    const sign = node ? { accepted: "✓ ", rejected: "✗ ", emitted: "+ " }[node[2]] || "" : "";
    const group = draw("g", { class: node ? `${node[2]} ${node[2] === "emitted" ? node[6] : ""}` : "root", transform: `translate(${x} ${y})` });
    group.append(draw("rect", { class: "node", width: 108, height: 22, rx: 5 }));
    group.append(draw("text", { x: 6, y: 15 }, sign + visible(text, 12)));
    if (node) {
      const drafted = chosen(node) ? (node[5] !== null ? `score ${number(node[5])}` : "chosen") : node[4] !== null ? `q ${number(node[4])}` : "";
      const beside = [drafted, node[3] !== null ? `p ${number(node[3])}` : ""].filter(Boolean);
      group.append(draw("text", { x: 6, y: 32, class: "small" }, beside.join("  ")));
      group.append(draw("title", {}, omitted ? why(node) : `${quoted(text)} (${node[0]}) ${why(node)}${chosen(node) ? `; ${chosenSaid(node[5])}` : ""}`));
    }
    svg.append(group);
  }
  const out = make("div", {}, svg);
  if (shown.length < nodes.length) out.append(make("p", { class: "faint" }, `${several(nodes.length - shown.length, "more node")} not drawn`));
  return out;
}

function testTable(nodes, pieces) {
  const told = nodes.filter((node) => node[2] === "accepted" || node[2] === "rejected" || node[2] === "emitted");
  if (!told.length) return "";
  const head = ["token", "verdict", "p (verifier)", "q (draft)", "p/q"];
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head.map((h) => make("th", { scope: "col" }, h)))));
  for (const node of told.slice(0, 60)) {
    const [token, , , p, q] = node;
    const ratio = p !== null && q ? number(p / q) : "";
    table.append(make("tr", {}, make("td", { class: "mono" }, visible(pieces[token] ?? "", 20)), make("td", {}, why(node).split(";")[0]),
      ...[number(p), chosen(node) ? "chosen" : number(q), ratio].map((x) => make("td", { class: "number" }, x))));
  }
  return table;
}

function acceptanceDrawing(depths) {
  const high = 18, wide = 220;
  const said = depths.map(([t, a], i) => `depth ${i + 1}: ${a} of ${t}`).join("; ");
  const width = wide + 130, height = depths.length * high + 2;
  const svg = draw("svg", { class: "fit", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Acceptance by depth. ${said}` });
  depths.forEach(([tested, accepted], i) => {
    const share = tested ? accepted / tested : 0, y = i * high;
    svg.append(draw("text", { x: 18, y: y + 13, "text-anchor": "end" }, String(i + 1)), draw("rect", { class: "track", x: 26, y: y + 3, width: wide, height: 12, rx: 2 }),
      draw("rect", { class: "bar", x: 26, y: y + 3, width: wide * share, height: 12, rx: 2 }),
      draw("text", { x: wide + 34, y: y + 13 }, `${Math.round(share * 100)}% of ${tested}`));
  });
  return svg;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, width * ratio);
  canvas.height = Math.max(1, height * ratio);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

const LABEL = 96, LANE = 22;

function timeDrawing(canvas, run, width) {
  const lanes = [...new Set(run.spans.map((s) => s[0]))];
  const end = Math.max(run.seconds, 1e-9);
  const height = lanes.length * LANE + 18;
  const pen = sized(canvas, width, height);
  const scale = (width - LABEL - 8) / end;
  pen.font = "11px system-ui, sans-serif";
  lanes.forEach((name, lane) => {
    pen.fillStyle = colour("--ink");
    pen.fillText(visible(name, 14), 0, lane * LANE + 14);
    pen.fillStyle = colour("--plain-soft");
    pen.fillRect(LABEL, lane * LANE + 3, width - LABEL - 8, LANE - 6);
    pen.fillStyle = colour(run.roles[name] === "target" ? "--bar" : "--accepted");
    for (const [model, start, seconds] of run.spans)
      if (model === name) pen.fillRect(LABEL + start * scale, lane * LANE + 3, Math.max(0.7, seconds * scale), LANE - 6);
  });
  pen.fillStyle = colour("--faint");
  for (let i = 0; i <= 4; i++) {
    pen.textAlign = ["left", "center", "center", "center", "right"][i];
    pen.fillText(number((end * i) / 4, 2) + " s", LABEL + ((width - LABEL - 8) * i) / 4, height - 4);
  }
  pen.textAlign = "left";
  const said = lanes.map((name) => {
    const own = run.spans.filter((s) => s[0] === name);
    return `${name}: ${several(own.reduce((n, s) => n + s[3], 0), "call")}, ${number(own.reduce((n, s) => n + s[2], 0), 2)} s`;
  });
  canvas.setAttribute("aria-label", `Model calls over time. ${said.join("; ")}`);
  return { scale, said };
}

function heat(confidence) { // dark where sure: one hue, so that lightness alone tells
  return `hsl(212 75% ${Math.round(88 - 58 * Math.min(1, Math.max(0, confidence)))}%)`;
}

function cellDrawing(canvas, run, width) {
  const positions = run.positions, steps = run.steps.length;
  const w = Math.max(2, Math.min(16, Math.floor((width - LABEL) / positions) || 2)), h = Math.max(1, Math.min(14, Math.floor(420 / steps) || 1));
  const pen = sized(canvas, LABEL + positions * w, steps * h);
  const held = new Map();
  run.steps.forEach((step, row) => {
    const y = row * h;
    pen.fillStyle = colour("--plain-soft");
    pen.fillRect(LABEL, y, positions * w, h);
    const call = step.log.find((e) => e[3] === "ModelCall" && run.roles[e[4]] === "target");
    if (call && call[6]) { // how much of what the call read was computed anew
      pen.fillStyle = colour("--bar");
      pen.fillRect(LABEL - 44, y, 38 * Math.min(1, (call[7] ?? call[6]) / call[6]), Math.max(1, h - 1));
    }
    for (const position of held.keys()) {
      pen.globalAlpha = 0.22;
      pen.fillStyle = heat(held.get(position));
      pen.fillRect(LABEL + position * w, y, w, h);
    }
    pen.globalAlpha = 1;
    for (const [position, token, confidence, replaced] of step.edits || []) {
      pen.fillStyle = token < 0 ? colour("--rejected") : replaced ? colour("--residual") : heat(confidence);
      pen.fillRect(LABEL + position * w, y, Math.max(1, w - 1), Math.max(1, h - (h > 3)));
      if (token < 0) held.delete(position);
      else held.set(position, confidence);
    }
  });
  const decided = run.steps.reduce((n, s) => n + (s.edits || []).filter((e) => e[1] >= 0).length, 0);
  canvas.setAttribute("aria-label", `Canvas, ${several(positions, "position")} by ${several(steps, "step")}; ${several(decided, "decision")}, ${run.stats.remasked} masked again`);
  return { w, h };
}
