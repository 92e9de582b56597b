// Drawings of a run: a step's tree, acceptance by depth, the time line of model calls, a canvas as position by step.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const MOST_NODES = 1200; // of a tree that are drawn; the path that was accepted always is
const WIDE = 132, WIDEST = 420, HIGH = 38; // of a node with its room, before the tree is made to fit
const ON_PATH = new Set(["accepted", "emitted", "committed"]);
const DATA = JSON.parse(document.getElementById("data").textContent), { words: WORDS, signs: SIGNS } = DATA; // views/words.py

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

function word(kind) { return WORDS[kind].split(":")[0]; }

function visible(text, most = 14) { // as views/words.py has it: what cannot be seen, or HTML would collapse
  const shown = text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$| {2,}|(?<=[⏎⇥]) +| +(?=[⏎⇥])/g, (s) => "·".repeat(s.length));
  return shown.length > most ? shown.slice(0, most - 1) + "…" : shown || "∅";
}

function marked(text) { // a token's part of a text, in which CSS shows what cannot be seen, but for the one blank before a word: a copy of the text has no marks
  const kinds = { "\n": "end", "\t": "tab" };
  return text.split(/(\n|\t| {2,}|^ +$| +$| +(?=\n)|(?<=\n) +)/).filter(Boolean).map((part) => (/\S/.test(part) || (part === " " && text.trim()) ? part : make("span", { class: kinds[part] ?? "blank" }, part)));
}

function quoted(text) { return `"${visible(text, 60)}"`; }

function several(n, noun) { return `${n} ${noun}${n === 1 ? "" : "s"}`; }

function number(x, digits = 3) {
  if (x === null || x === undefined) return "";
  return x !== 0 && Math.abs(x) < 0.001 ? x.toExponential(1) : String(Number(x.toFixed(digits)));
}

function nodesOf(tree, columns, words) { // each node as an object; see node_data of views/document.py
  const names = ["token", "parent", "state", "source", "born", "settled", "values", "score", "q", "p", "raw", "why"];
  const listed = new Set(["state", "source", "why"]); // of which a node has the place in the list of words
  return tree.map((row, i) => Object.fromEntries([["i", i], ["columns", columns], ...names.map((name, k) => [name, row[k] === undefined || row[k] === null ? (name === "why" ? "" : null) : listed.has(name) ? words[row[k]] : row[k]])]));
}

function nodesAt(tree, step) { // as they were at the end of a step
  const many = tree.some((node) => node.born !== tree[0].born);
  return tree.filter((node) => node.born <= step).map((node) => {
    const settled = node.state === "drafted" || node.settled <= step;
    const columns = {};
    node.columns.forEach((name, k) => {
      const told = node.values[k];
      const value = Array.isArray(told) ? told.findLast(([when]) => when <= step)?.[1] : told;
      if (value !== undefined && value !== null) columns[name] = value;
    });
    return { ...node, ...(settled ? {} : { state: "drafted", p: null, raw: null, why: "" }), columns, fresh: many && node.born === step };
  });
}

function kind(node) { return node.state === "emitted" ? node.source : node.state; }

function why(node) { return node.state === "rejected" ? `${word("rejected")}: ${node.why}` : WORDS[kind(node)]; }

function treeLegend(nodes) { // of what is in a tree
  const kinds = new Map(nodes.map((node) => [kind(node), node.state]));
  if (nodes.some((node) => node.fresh)) kinds.set("fresh", "fresh");
  return make("div", { class: "legend", "aria-label": "Boxes of the tree" }, ...Object.keys(WORDS).filter((one) => kinds.has(one) && one !== "pruned").map((one) =>
    make("span", {}, draw("svg", { width: 16, height: 12 }, draw("g", { class: `${kinds.get(one)} ${one}` }, draw("rect", { class: "node", x: 1, y: 1, width: 14, height: 10, rx: 3 }))), ` ${SIGNS[kinds.get(one)] ?? ""}${word(one)}`)));
}

function chosen(node) { return node.state !== "emitted" && node.q === null; } // a draft without a draw, as topk makes it

function apart(a, b) { return a !== null && b !== null && Math.abs(a - b) > 5e-4; }

function numbersOf(node) { // [name, value] of what a node was drawn, chosen and judged by, the most telling first
  const out = Object.entries(node.columns).filter(([, x]) => x !== null);
  if (chosen(node)) { if (node.score !== null) out.push(["score", node.score]); }
  else if (node.q !== null) out.push(...(apart(node.q, node.score) ? [["raw q", node.score]] : []), ["q", node.q]);
  if (node.p !== null) out.push(...(apart(node.p, node.raw) ? [["raw p", node.raw]] : []), ["p", node.p]);
  return out;
}

function besideNode(node) { // the same in few characters: of 0 and 1, as temperature 0 makes them, the numbers before the shaping alone
  const all = numbersOf(node), names = new Set(all.map(([name]) => name)), short = (x) => (Math.abs(x) < 0.005 && x ? "~0" : number(x, 2));
  let raw = false;
  return all.filter(([name, x]) => !(names.has(`raw ${name}`) && (x === 0 || x === 1))).slice(0, 4).map(([name, x]) => {
    const again = name.startsWith("raw ") && raw;
    raw = name.startsWith("raw ");
    return `${again ? name.slice(4) : name} ${short(x)}`;
  }).join(" ");
}

function inner(d) { return ON_PATH.has(d.data.node.state) || d.children || d.data.node.i < 0; }

class TreeView { // a tree in a box: it fits first; wheel, pinch, drag and keys zoom and move it
  constructor(nodes, pieces, root, omitted) { // omitted: pruned nodes that the page does not have
    this.nodes = nodes;
    this.pieces = pieces;
    this.root = root;
    const counted = {};
    for (const node of nodes) counted[kind(node)] = (counted[kind(node)] || 0) + 1;
    this.svg = d3.select(draw("svg", { role: "presentation" }));
    this.links = this.svg.append("g");
    this.pills = this.svg.append("g");
    this.map = d3.select(draw("svg", { class: "overview", "aria-hidden": "true" }));
    this.box = make("div", { class: "tree", tabindex: "0", role: "tree", "aria-label": "Draft tree: " + Object.entries(counted).map(([one, n]) => `${n} ${word(one)}`).join(", ") }, this.svg.node(), this.map.node());
    this.detail = make("p", { class: "detail faint", role: "status" });
    const button = (text, said, does) => { const made = make("button", { "aria-label": said, title: said }, text); made.addEventListener("click", does); return made; };
    this.tools = make("div", { class: "tools" }, button("−", "Smaller (-)", () => this.scale(1 / 1.4)), button("+", "Larger (+)", () => this.scale(1.4)), button("fit", "fit: the whole tree (0)", () => this.fit()),
      button("path", "path: to the accepted one (p)", () => this.toPath()));
    if (counted.pruned) {
      this.pruned = make("input", { type: "checkbox" });
      this.pruned.addEventListener("change", () => this.draw());
      this.tools.append(make("label", {}, this.pruned, ` ${counted.pruned + omitted} pruned${omitted ? `, ${counted.pruned} of them on this page` : ""}`));
    }
    this.missing = make("span", { class: "faint" });
    this.tools.append(this.missing);
    this.element = make("div", { class: "tree-view" }, this.tools, this.box, this.detail, treeLegend(nodes));
    this.zoom = d3.zoom().on("zoom", (event) => this.place(event.transform))
      .filter((event) => !event.button && !(event.type === "wheel" && event.deltaY > 0 && this.at.k <= this.least * 1.001)); // the page scrolls on
    this.svg.call(this.zoom).on("dblclick.zoom", null).on("click", (event) => {
      const [d, apart] = this.nearest(event);
      if (apart > 20) return;
      this.tell(d);
      this.box.focus({ preventScroll: true });
    });
    this.map.call((map) => map.on("pointerdown pointermove", (event) => {
      if (!event.buttons) return;
      const [x, y] = [event.offsetX / this.mapScale, event.offsetY / this.mapScale];
      this.svg.call(this.zoom.translateTo, x, y);
    }));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.shown = null; // the node whose numbers are told
  }

  kept() { // the nodes that are drawn
    const open = this.nodes.filter((node) => node.state !== "pruned" || (this.pruned && this.pruned.checked));
    if (open.length <= MOST_NODES) return open;
    const by = new Map(open.map((node) => [node.i, node])), kept = new Set();
    const up = (node) => { for (let n = node; n && !kept.has(n); n = by.get(n.parent)) kept.add(n); };
    open.filter((node) => !["drafted", "grown", "left", "pruned"].includes(node.state)).forEach(up);
    for (const node of [...open.filter((n) => n.fresh), ...open]) if (kept.size < MOST_NODES) up(node);
    return open.filter((node) => kept.has(node));
  }

  draw() { // lay it out for the width of the box
    const kept = this.kept();
    const hidden = this.nodes.length - kept.length - (this.pruned && !this.pruned.checked ? this.nodes.filter((n) => n.state === "pruned").length : 0);
    this.missing.textContent = hidden > 0 ? `${several(hidden, "more node")} not drawn` : "";
    const below = new Map([[-1, []]]);
    for (const node of kept) below.set(node.i, []);
    for (const node of kept) (below.get(node.parent) ?? below.get(-1)).push(node);
    const like = (a, b) => ["drafted", "grown", "committed"].includes(a.state) && a.state === b.state && a.fresh === b.fresh;
    const run = (node) => { // drafts one below the other, which nobody tested and which are alike: one box
      const line = [node];
      for (let next = below.get(node.i); next.length === 1 && like(node, next[0]); next = below.get(next[0].i)) line.push(next[0]);
      return line;
    };
    const grown = (node) => {
      const line = node.i < 0 ? [node] : run(node);
      const whole = line.length > 2 ? line : [node];
      return { node, line: whole, kids: below.get(whole.at(-1).i) };
    };
    const top = d3.hierarchy(grown({ i: -1, state: "root", columns: {}, q: null, score: null, p: null, raw: null }), (d) => d.kids.map(grown));
    d3.tree().nodeSize([1, 1]).separation(() => 1)(top);
    const all = top.descendants(), rows = all.map((d) => d.x), low = Math.min(...rows), deep = top.height + 1;
    const width = Math.max(200, this.box.clientWidth), high = (Math.max(...rows) - low + 1) * HIGH + 12;
    const height = Math.round(Math.max(64, Math.min(high, Math.max(260, Math.min(760, window.innerHeight * 0.5)))));
    const fits = Math.min(1, height / high);
    const column = Math.max(WIDE, Math.min(Math.max(WIDEST, 28 / fits), width / deep / fits));
    this.world = [deep * column, high];
    this.least = Math.min(fits, width / this.world[0]);
    this.size = [width, height];
    this.column = column;
    for (const d of all) { d.left = d.y * column + 4; d.middle = (d.x - low) * HIGH + HIGH / 2 + 6; }
    const last = []; // by depth, the one above
    for (const d of all.filter(inner).sort((a, b) => a.middle - b.middle)) {
      const above = last[d.depth];
      d.room = above ? d.middle - above.middle : Infinity;
      if (above) above.room = Math.min(above.room, d.room);
      last[d.depth] = d;
    }
    this.all = all;
    this.svg.attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`);
    const links = top.links();
    this.links.selectAll("path").data(links).join("path").attr("class", (l) => `edge ${ON_PATH.has(l.target.data.node.state) ? l.target.data.node.state : ""}`);
    const weight = (d) => (ON_PATH.has(d.data.node.state) ? 2 : d.children ? 1 : 0);
    const order = all.slice().sort((a, b) => weight(a) - weight(b)); // the path lies above the others
    this.pills.selectAll("g").data(order).join((enter) => {
      const g = enter.append("g");
      g.append("rect").attr("class", "node").attr("rx", 5);
      g.append("text").attr("class", "token").attr("aria-hidden", "true");
      g.append("text").attr("class", "small").attr("aria-hidden", "true");
      return g.on("pointerenter", (_, d) => this.tell(d));
    }).attr("class", (d) => `${d.data.node.state} ${d.data.node.state === "emitted" ? d.data.node.source : ""} ${d.data.node.fresh ? "fresh" : ""}`)
      .attr("role", "treeitem").attr("id", (d) => `${this.name()}-${d.data.node.i}`).attr("aria-level", (d) => d.depth + 1).attr("aria-label", (d) => this.said(d));
    const mapWidth = Math.min(130, width / 3);
    this.mapScale = Math.min(mapWidth / this.world[0], 90 / this.world[1]);
    this.map.attr("width", this.world[0] * this.mapScale).attr("height", this.world[1] * this.mapScale);
    this.map.selectAll("*").remove();
    const m = this.mapScale;
    this.map.append("path").attr("class", "edge").attr("d", links.map((l) => `M${l.source.left * m} ${l.source.middle * m}L${l.target.left * m} ${l.target.middle * m}`).join(""));
    this.map.append("path").attr("class", "edge accepted").attr("d", links.filter((l) => ON_PATH.has(l.target.data.node.state)).map((l) => `M${l.source.left * m} ${l.source.middle * m}L${l.target.left * m} ${l.target.middle * m}`).join(""));
    this.frame = this.map.append("rect").attr("class", "frame");
    this.zoom.extent([[0, 0], this.size]).scaleExtent([this.least, Math.max(1, this.least) * 1.6]).translateExtent([[0, 0], this.world]);
    this.fit();
  }

  name() { return (this.id ??= `tree${(TreeView.made = (TreeView.made ?? 0) + 1)}`); }

  fit() { this.svg.call(this.zoom.transform, this.clamped(this.least, 0, this.world[1] / 2)); }

  clamped(k, x, y) { // a point of the tree at the left, in the middle of the height
    const [width, height] = this.size, [w, h] = this.world;
    const tx = w * k <= width ? 0 : Math.max(width - w * k, Math.min(0, -x * k));
    const ty = h * k <= height ? (height - h * k) / 2 : Math.max(height - h * k, Math.min(0, height / 2 - y * k));
    return d3.zoomIdentity.translate(tx, ty).scale(k);
  }

  scale(by) { this.svg.call(this.zoom.scaleBy, by); }

  toPath() { // the accepted path, or the root, at full size
    const path = this.all.filter((d) => ON_PATH.has(d.data.node.state));
    const deepest = path.length ? path.reduce((a, b) => (a.depth < b.depth ? b : a)) : this.all[0];
    const room = this.size[0];
    this.svg.call(this.zoom.transform, this.clamped(1, Math.max(0, deepest.left + this.column - room), deepest.middle));
    this.tell(deepest);
  }

  place(t) { // where everything is at a zoom; boxes keep the size of their letters
    this.at = t;
    const pill = Math.max(3, Math.min(170, this.column * t.k - 14)), tall = Math.max(2.5, Math.min(22, HIGH * t.k - 3));
    const spot = (d) => [t.applyX(d.left), t.applyY(d.middle)];
    const height = (d) => (inner(d) ? Math.max(tall, Math.min(17, pill + 2, d.room * t.k - 1)) : tall); // inner nodes are read first
    const second = HIGH * t.k >= 34 && pill > 60;
    const line = d3.linkHorizontal().source((l) => { const [x, y] = spot(l.source); return [x + pill, y]; }).target((l) => spot(l.target));
    const lift = second ? 8 : 0; // the numbers stand below the box
    this.links.selectAll("path").attr("d", line).attr("transform", `translate(0 ${-lift})`);
    const letters = Math.floor((pill - 8) / 7.3);
    let mute = 0; // boxes without room for a text
    Object.assign(this, { pill, lift });
    this.pills.selectAll("g").each((d, i, all) => {
      const g = d3.select(all[i]), [x, y] = spot(d), h = height(d);
      g.attr("transform", `translate(${x} ${y - h / 2 - lift})`);
      g.select("rect").attr("width", pill).attr("height", h);
      const small = h < 13 || letters < 2, size = Math.min(12, h - 4);
      mute += small;
      g.select(".token").attr("x", 5).attr("y", Math.min(h / 2 + 4.2, h - 2 - 0.3 * size)).style("font-size", `${size}px`).text(small ? "" : this.label(d, letters)); // an underscore clears the edge
      g.select(".small").attr("x", 5).attr("y", h + 11).text(second && d.data.node.i >= 0 ? besideNode(d.data.node).slice(0, Math.max(0, Math.floor((this.column * t.k - 8) / 6.1))) : "");
    });
    if (!this.shown) this.detail.textContent = mute ? "Some boxes are too small for their text: tap one, or point at it, to read it; + enlarges." : "Point at a box, tap it, or choose it with the arrow keys, for all that is known of it.";
    const more = t.k > this.least * 1.02;
    this.map.classed("hidden", !more);
    this.svg.style("touch-action", more ? "none" : "pan-y"); // a finger scrolls the page where there is nothing to move
    const [width, height2] = this.size, m = this.mapScale;
    this.frame.attr("x", -t.x / t.k * m).attr("y", -t.y / t.k * m).attr("width", width / t.k * m).attr("height", height2 / t.k * m);
  }

  nearest(event) { // the node at or beside a place, and how many pixels away
    const x = event.offsetX, y = event.offsetY, t = this.at;
    const apart = (d) => { const left = t.applyX(d.left); return Math.max(left - x, 0, x - left - this.pill) + Math.abs(t.applyY(d.middle) - this.lift - y); };
    return this.all.map((d) => [d, apart(d)]).reduce((a, b) => (a[1] <= b[1] ? a : b));
  }

  label(d, letters) { // what became of it, where there is room for that too
    const sign = letters > 5 ? SIGNS[d.data.node.state] ?? "" : "";
    return sign + visible(this.text(d), letters - sign.length);
  }

  text(d) { return d.data.node.i < 0 ? this.root : d.data.line.map((node) => this.pieces[node.token] ?? `<${node.token}>`).join(""); }

  said(d) {
    const { node, line } = d.data;
    if (node.i < 0) return `the context, which ends with ${quoted(this.text(d))}`;
    const from = node.source && node.state !== "emitted" && node.source !== "point" ? `, from ${node.source}` : "";
    const how = chosen(node) && node.source !== "point" ? ", chosen, not drawn" : "";
    const rest = line.length > 1 ? `${several(line.length, "token")} in a row; the first: ` : "";
    return `${quoted(this.text(d))} (${rest}${node.token})${from}${how}; ${why(node)}${numbersOf(node).map(([name, x]) => `; ${name} ${number(x)}`).join("")}`;
  }

  tell(d) {
    this.shown = d;
    this.detail.textContent = this.said(d);
    this.detail.classList.remove("faint");
    this.pills.selectAll("g").classed("active", (other) => other === d);
    this.box.setAttribute("aria-activedescendant", `${this.name()}-${d.data.node.i}`);
  }

  key(event) {
    const d = this.shown ?? this.all[0];
    const beside = (by) => { const same = this.all.filter((o) => o.depth === d.depth).sort((a, b) => a.x - b.x); return same[same.indexOf(d) + by]; };
    const kids = d.children || [];
    const to = { ArrowLeft: () => d.parent, ArrowRight: () => kids.find((o) => ON_PATH.has(o.data.node.state)) ?? kids[0], ArrowUp: () => beside(-1), ArrowDown: () => beside(1) }[event.key];
    const does = { "+": () => this.scale(1.4), "=": () => this.scale(1.4), "-": () => this.scale(1 / 1.4), 0: () => this.fit(), p: () => this.toPath() }[event.key];
    if ((!to && !does) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (does) return does();
    const there = to();
    if (!there) return;
    this.tell(there);
    const [x, y] = [this.at.applyX(there.left), this.at.applyY(there.middle)];
    if (x < 0 || y < 0 || x + 40 > this.size[0] || y > this.size[1]) this.svg.call(this.zoom.translateTo, there.left, there.middle);
  }
}

function testTable(nodes, pieces) {
  const tested = nodes.filter((node) => ["accepted", "rejected", "emitted"].includes(node.state));
  const told = tested.length ? tested : nodes.filter((node) => node.state === "committed" || node.fresh).sort((a, b) => (b.state === "committed") - (a.state === "committed"));
  if (!told.length) return "";
  const shaped = told.some((node) => apart(node.p, node.raw) || (!chosen(node) && apart(node.q, node.score)));
  const columns = [...new Set(told.flatMap((node) => Object.keys(node.columns)))];
  const score = told.some((node) => chosen(node) && node.score !== null);
  const verified = tested.length > 0, drawn = told.some((node) => !chosen(node) && node.state !== "emitted");
  const head = ["token", "verdict", ...(verified ? [...(shaped ? ["raw p"] : []), "p (verifier)"] : []), ...(drawn ? [...(shaped ? ["raw q"] : []), "q (draft)"] : []), ...(drawn && verified ? ["p/q"] : []), ...(score ? ["score"] : []), ...columns];
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head.map((h) => make("th", { scope: "col" }, h)))));
  for (const node of told.slice(0, 60)) {
    const { p, q } = node, picked = chosen(node);
    const ratio = p !== null && q ? number(p / q) : "";
    const cells = [...(verified ? [...(shaped ? [number(node.raw)] : []), number(p)] : []), ...(drawn ? [...(shaped ? [picked ? "" : number(node.score)] : []), picked ? "" : number(q)] : []),
      ...(drawn && verified ? [ratio] : []), ...(score ? [picked ? number(node.score) : ""] : []), ...columns.map((name) => number(node.columns[name]))];
    table.append(make("tr", {}, make("td", { class: `mono word ${node.state} ${node.state === "emitted" ? node.source : ""}` }, (SIGNS[node.state] || "") + visible(pieces[node.token] ?? "", 20)), make("td", {}, word(kind(node))), ...cells.map((x) => make("td", { class: "number" }, x))));
  }
  return table;
}

function acceptanceDrawing(depths) {
  const high = 20, x = d3.scaleLinear([0, 1], [26, 246]);
  const percent = (share) => `${Math.round(share * 100)}`;
  const said = depths.map(([t, a, low, up], i) => `depth ${i + 1}: ${a} of ${t}, 95 % interval ${percent(low)} to ${percent(up)} %`).join("; ");
  const width = 440, height = depths.length * high + 2;
  const svg = d3.select(draw("svg", { class: "fit", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Acceptance by depth. ${said}` }));
  const row = svg.selectAll("g").data(depths).join("g").attr("transform", (_, i) => `translate(0 ${i * high})`);
  row.append("text").attr("x", 18).attr("y", 14).attr("text-anchor", "end").text((_, i) => i + 1);
  row.append("rect").attr("class", "track").attr("x", x(0)).attr("y", 3).attr("width", x(1) - x(0)).attr("height", 13).attr("rx", 2);
  row.append("rect").attr("class", "bar").attr("x", x(0)).attr("y", 3).attr("width", ([t, a]) => x(t ? a / t : 0) - x(0)).attr("height", 13).attr("rx", 2);
  row.append("path").attr("class", "whisker").attr("d", ([, , low, up]) => `M${x(low)} 6v7M${x(low)} 9.5H${x(up)}M${x(up)} 6v7`);
  row.append("text").attr("x", x(1) + 8).attr("y", 14).text(([t, a, low, up]) => `${a} of ${t}  ${percent(t ? a / t : 0)}% [${percent(low)}, ${percent(up)}]`);
  return svg.node();
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
  const x = d3.scaleLinear([0, end], [LABEL, width - 8]), scale = x(1) - x(0);
  pen.font = "11px system-ui, sans-serif";
  lanes.forEach((name, lane) => {
    pen.fillStyle = colour("--ink");
    pen.fillText(visible(name, 14), 0, lane * LANE + 14);
    pen.fillStyle = colour("--plain-soft");
    pen.fillRect(LABEL, lane * LANE + 3, width - LABEL - 8, LANE - 6);
    pen.fillStyle = colour(run.roles[name] === "target" ? "--lane" : "--lane-soft");
    for (const [model, start, seconds] of run.spans)
      if (model === name) pen.fillRect(x(start), lane * LANE + 3, Math.max(0.7, seconds * scale), LANE - 6);
  });
  pen.fillStyle = colour("--faint");
  pen.textAlign = "center";
  const digits = Math.max(0, Math.ceil(-Math.log10(end / 4)));
  for (const tick of x.ticks(Math.max(2, Math.min(6, Math.floor(width / 110))))) {
    pen.fillRect(x(tick), lanes.length * LANE, 1, 4);
    pen.textAlign = tick === 0 ? "left" : x(tick) > width - 30 ? "right" : "center";
    pen.fillText(number(tick, digits) + " s", x(tick), height - 2);
  }
  pen.textAlign = "left";
  const said = lanes.map((name) => {
    const own = run.spans.filter((s) => s[0] === name);
    return `${name}: ${several(own.reduce((n, s) => n + s[3], 0), "call")}, ${number(own.reduce((n, s) => n + s[2], 0), 2)} s`;
  });
  canvas.setAttribute("aria-label", `Model calls over time. ${said.join("; ")}`);
  return { scale, said };
}

function twice(step) { // how many cells a step changes twice or more
  const changed = (step.edits || []).map((e) => e[0]);
  return new Set(changed.filter((position, k) => changed.indexOf(position) < k)).size;
}

function heat([low, high]) { // of a run's confidences: light for the lowest, dark for the highest; the other way round on a dark ground
  return d3.scaleLinear([low < high ? low : low - 1, high], [colour("--unsure"), colour("--sure")]).clamp(true);
}

function cellDrawing(canvas, run, width) {
  const positions = run.positions, steps = run.steps.length, foot = 16;
  const w = Math.max(2, Math.min(18, Math.floor((width - LABEL - 6) / positions) || 2)), h = Math.max(1, Math.min(14, Math.floor(420 / steps) || 1));
  const pen = sized(canvas, LABEL + positions * w + 6, steps * h + foot);
  const held = new Map(), shade = heat(run.sure);
  pen.font = "11px system-ui, sans-serif";
  run.steps.forEach((step, row) => {
    const y = row * h;
    pen.fillStyle = colour("--panel");
    pen.fillRect(LABEL, y, positions * w, h);
    pen.fillStyle = colour("--undecided");
    for (let i = 0; i < positions; i++) if (!held.has(i)) pen.fillRect(LABEL + i * w + w / 2 - 1, y + h / 2 - 0.75, Math.min(2, w / 2), Math.min(1.5, h)); // a dot: nothing stands here
    const call = step.log.find((e) => e[3] === "ModelCall" && run.roles[e[4]] === "target");
    if (call && call[6]) { // how much of what the call read was computed anew
      pen.fillStyle = colour("--lane");
      pen.fillRect(LABEL - 44, y, 38 * Math.min(1, (call[7] ?? call[6]) / call[6]), Math.max(1, h - 1));
    }
    if (row % Math.max(1, Math.ceil(14 / h)) === 0) {
      pen.fillStyle = colour("--faint");
      pen.textAlign = "right";
      pen.fillText(String(row + 1), LABEL - 50, y + Math.min(h, 11));
    }
    for (const [position, confidence] of held) {
      pen.fillStyle = shade(confidence);
      pen.globalAlpha = 0.55;
      pen.fillRect(LABEL + position * w, y, w, h);
    }
    pen.globalAlpha = 1;
    const changed = new Map();
    for (const edit of step.edits || []) changed.set(edit[0], [...(changed.get(edit[0]) ?? []), edit]);
    for (const [position, changes] of changed) { // what it was in turn, from left to right; where there is no room, masked again
      const wide = Math.max(1, w - 1), tall = Math.max(1, h - (h > 3)), room = Math.max(1, Math.floor(wide / 2));
      const shown = changes.length <= room ? changes : [changes.find((e) => e[1] < 0) ?? changes[0], ...changes.slice(changes.length - room + 1)];
      shown.forEach(([, token, confidence, replaced], k) => {
        const x = LABEL + position * w + (wide * k) / shown.length, part = wide / shown.length;
        pen.fillStyle = token < 0 ? colour("--rejected") : shade(confidence);
        pen.fillRect(x, y, part, tall);
        if (token < 0) return;
        pen.fillStyle = colour(replaced ? "--residual" : "--mark"); // decided, or replaced, now
        pen.fillRect(x, y, part, Math.max(1, Math.min(3, h / 3)));
      });
      const [, token, confidence] = changes.at(-1);
      if (token < 0) held.delete(position);
      else held.set(position, confidence);
    }
  });
  pen.fillStyle = colour("--faint");
  for (const tick of d3.scaleLinear([0, positions - 1], [0, positions - 1]).ticks(Math.max(1, Math.min(8, Math.floor((positions * w) / 50)))).filter(Number.isInteger)) {
    pen.textAlign = "center";
    pen.fillText(String(tick), LABEL + (tick + 0.5) * w, steps * h + foot - 4);
  }
  pen.textAlign = "left";
  const decided = run.steps.reduce((n, s) => n + (s.edits || []).filter((e) => e[1] >= 0).length, 0);
  canvas.setAttribute("aria-label", `Canvas, ${several(positions, "position")} by ${several(steps, "step")}; ${several(decided, "decision")}, ${run.stats.remasked} masked again`);
  return { w, h };
}
