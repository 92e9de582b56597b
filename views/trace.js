// The page of a run, or of two beside each other: text by origin, the steps, their trees, and the program.
"use strict";

const CHUNK = 64, FIRST = 16; // tokens in a chunk of the text; chunks that are made before the page is first shown
const MOST_TREES = 8; // of a step that are drawn
const ENDED = { limit: "the limit of new tokens", eos: "the end-of-text token", stop: "a stop string", context: "the full context window",
  end: "the end of the algorithm", error: "an error", interrupted: "an interruption" }; // as the command line says it

class RunView {
  constructor(run, root, choose) {
    this.run = run;
    this.choose = choose;
    this.step = -1;
    this.event = -1;
    run.positions = Math.max(run.tokens.length, ...run.steps.map((s) => s.cells || 0));
    this.canvas = run.stats.unmasked > 0;
    this.trees = run.trees.map((tree) => nodesOf(tree, run.columns, run.words));
    this.size = this.canvas ? run.positions : run.tokens.length;
    this.stepOf = new Int32Array(this.size).fill(-1);
    this.history = this.canvas ? Array.from({ length: this.size }, () => []) : null;
    run.steps.forEach((step, s) => {
      if (!this.canvas) for (let i = step.first; i < step.first + step.n; i++) this.stepOf[i] = s;
      for (const edit of step.edits || []) {
        const [position, token, confidence] = edit;
        if (position >= 0 && position < this.size) {
          const before = this.history[position].at(-1);
          edit[3] = before !== undefined && before[1] >= 0 && token >= 0 && before[1] !== token; // a decided token is replaced
          this.history[position].push([s, token, confidence]);
          this.stepOf[position] = s;
        }
      }
      step.log.filter((e) => e[3] === "Unmasked" || e[3] === "Remasked").forEach((e, k) => { e.edit = (step.edits || [])[k]; });
    });
    this.build(root);
  }

  build(root) {
    const run = this.run;
    const params = Object.entries(run.params).map(([k, v]) => `${k}=${v}`).join(", ");
    const called = this.canvas ? "model call" : "target call";
    const calls = run.stats.target_calls && run.stats.tokens ? `, ${number(run.stats.tokens / run.stats.target_calls, 2)} token${run.stats.tokens === run.stats.target_calls ? "" : "s"} a call` : "";
    const facts = `${several(run.stats.tokens, "token")} in ${several(run.steps.length, "step")}, ${several(run.stats.target_calls, called)}${calls}; ${run.live ? "still going on" : "ended by " + (ENDED[run.reason] ?? run.reason)}; ${run.backend} backend`;
    const named = (title) => ({ class: "panel", "data-panel": title, "aria-label": document.querySelector("main.two") ? `${title} of ${run.name}` : title }); // of two runs each has its own
    const panel = (title, ...inner) => make("section", named(title), make("h3", {}, title), ...inner);
    const kinds = this.canvas ? ["prompt", "masked"] : ["prompt", ...new Set(run.origins)];
    const legend = make("div", { class: "legend", "aria-label": "Colours of the text" }, ...kinds.map((k) => make("span", { class: k }, k === "prompt" ? k : word(k))));
    if (this.canvas) legend.append(...[0, 0.33, 0.66, 1].map((x) => {
      const made = make("span", {}, ["decided early", "then", "later", "last"][Math.round(x * 3)]);
      made.style.borderBottom = `3px solid ${age(x)}`;
      return made;
    }));
    this.text = make("div", { class: this.canvas ? "text cells" : "text", tabindex: "0", role: "group", "aria-label": `Text of ${run.name}, coloured by origin` });
    this.text.append(make("span", { class: "prompt" }, ...run.prompt.flatMap(marked)));
    this.spans = [];
    this.chunks = [];
    this.fill(FIRST);
    this.text.addEventListener("click", (event) => {
      const span = event.target.closest("[data-i]");
      if (span) this.choose(this, this.stepOf[span.dataset.i]);
    });
    this.text.addEventListener("mouseover", (event) => {
      const span = event.target.closest("[data-i]");
      if (span && !span.title) span.title = this.said(Number(span.dataset.i));
    });
    this.stepPanel = make("div", {});
    this.stepTitle = make("h3", {});
    this.log = make("ol", { class: "log", tabindex: "0", "aria-label": "Events of this step" });
    this.log.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (item) this.select([...this.log.children].indexOf(item));
    });
    this.source = make("pre", { class: "source scroll", tabindex: "0", role: "group", "aria-label": "Lines of the program" }, ...run.source.map((line) => make("div", {}, line || " ")));
    const left = make("div", { class: "stack" }, panel("Text", legend, this.text));
    const right = make("div", { class: "stack" }, make("section", named("Step"), this.stepTitle, this.stepPanel, make("details", { open: "" }, make("summary", {}, "Events"), this.log)));
    if (run.source.length) left.append(panel("Program", this.source));
    if (this.canvas) {
      this.cells = make("canvas", { role: "img" });
      this.cellRow = make("div", { class: "row" });
      this.cellBox = make("div", { class: "drawing scroll" }, this.cells, this.cellRow);
      this.cellDetail = make("p", { class: "detail faint", role: "status" }, "Point at a cell, or tap it, for its history.");
      this.cells.addEventListener("click", (event) => this.choose(this, Math.floor(event.offsetY / this.cellSize.h)));
      this.cells.addEventListener("pointermove", (event) => { this.cellDetail.textContent = this.cellSaid(event.offsetX, event.offsetY); });
      this.cells.addEventListener("pointerdown", (event) => { this.cellDetail.textContent = this.cellSaid(event.offsetX, event.offsetY); });
      const [low, high] = run.sure.map((x) => `confidence ${number(x)}`), edits = run.steps.flatMap((s) => s.edits || []);
      const kinds = [["undecided", "undecided"], ...(low === high ? [] : [["unsure", low]]), ["sure", high], ["decided", word("decided")], ...(edits.some((e) => e[3]) ? [["replaced", word("replaced")]] : []),
        ...(run.stats.remasked ? [["again", word("again")]] : []), ...(run.steps.some(twice) ? [["twice", WORDS.twice]] : [])];
      right.append(panel("Canvas: position by step", make("p", { class: "faint" }, "A row is a step, a column a position. The bar at the left: the share of the positions read that was computed anew."),
        make("div", { class: "legend heat", "aria-label": "Colours of the canvas" }, ...kinds.map(([kind, words]) => make("span", {}, make("i", { class: kind }), words))), this.cellBox, this.cellDetail));
    }
    if (run.depths.length) right.append(panel("Acceptance by depth", acceptanceDrawing(run.depths)));
    if (run.spans.length) {
      this.time = make("canvas", { role: "img" });
      this.timeWindow = make("div", { class: "window" });
      this.timeSaid = make("p", { class: "faint" });
      this.timeBox = make("div", { class: "drawing" }, this.time, this.timeWindow);
      right.append(panel("Model calls over time", this.timeSaid, this.timeBox));
    }
    const title = make("div", {}, make("h2", {}, run.name + (params ? `  (${params})` : "")), make("span", { class: "faint" }, facts));
    root.append(title, ...(run.error ? [make("p", { class: "error" }, run.error)] : []), make("div", { class: "columns" }, left, right));
  }

  drawAll() { // what depends on the width and the theme
    if (this.time) {
      const { scale, said } = timeDrawing(this.time, this.run, Math.max(260, this.timeBox.clientWidth));
      this.timeScale = scale;
      this.timeSaid.textContent = said.join("; ");
    }
    for (const tree of this.drawn || []) tree.draw();
    if (this.cells) this.cellSize = cellDrawing(this.cells, this.run, Math.max(260, this.cellBox.clientWidth - 16));
    this.markTime();
  }

  fill(chunks) { // make chunks of the text up to a number
    const last = Math.min(Math.ceil(this.size / CHUNK), chunks);
    for (let c = this.chunks.length; c < last; c++) {
      const chunk = make("span", { class: "chunk later" });
      for (let i = c * CHUNK; i < Math.min(this.size, (c + 1) * CHUNK); i++) {
        const span = make("span", { "data-i": i, class: this.canvas ? "masked" : this.run.origins[i] || "plain" }, ...(this.canvas ? ["░"] : marked(this.run.texts[i])));
        this.spans.push(span);
        chunk.append(span);
      }
      this.chunks.push(chunk);
      this.text.append(chunk);
    }
    if (last * CHUNK < this.size) setTimeout(() => this.fill(this.chunks.length + FIRST), 0);
    else if (this.different !== undefined) this.differ(this.different);
    if (this.chunks.length && this.step >= 0) this.dim(this.step);
  }

  piece(token) { return this.run.pieces[token] ?? `<${token}>`; }

  said(i) {
    const token = this.run.tokens[i];
    const origin = this.canvas ? this.history[i].map(([s, t, c]) => (t < 0 ? `masked again in step ${s + 1}` : `${quoted(this.piece(t))} in step ${s + 1}, confidence ${number(c)}`)).join("; ") : WORDS[this.run.origins[i]];
    return `${token === undefined ? "" : quoted(this.piece(token)) + ` (${token}), `}position ${i}${this.canvas ? "" : `, step ${this.stepOf[i] + 1}`}: ${origin}`;
  }

  cellSaid(x, y) {
    const position = Math.floor((x - LABEL) / this.cellSize.w), step = Math.floor(y / this.cellSize.h);
    if (position < 0 || position >= this.size) return `step ${step + 1}`;
    return `step ${step + 1}, ${this.said(position)}`;
  }

  reached(step) { const s = this.run.steps[step]; return s ? s.first + s.n : 0; }

  go(step) {
    const before = this.step, run = this.run;
    if (!run.steps.length || step === before) return;
    this.step = step;
    if (this.canvas) this.recell(before, step);
    else this.dim(step);
    for (const span of this.current || []) span.classList.remove("now");
    const s = run.steps[step];
    const touched = this.canvas ? (s.edits || []).map((e) => e[0]) : Array.from({ length: s.n }, (_, k) => s.first + k);
    this.fill(Math.ceil((Math.max(-1, ...touched) + 1) / CHUNK));
    this.current = touched.map((i) => this.spans[i]).filter(Boolean);
    for (const span of this.current) span.classList.add("now");
    this.reveal(this.text, this.current[0]);
    const loop = s.i >= 0 && run.steps.some((other) => other.i > 0) ? `, iteration ${s.i + 1} of the main loop` : "";
    this.stepTitle.textContent = `Step ${step + 1} of ${run.steps.length}${loop}: ${several(s.n, "token")} committed`;
    this.showTrees(s);
    this.log.replaceChildren(...s.log.slice(0, 300).map((e) => make("li", {}, make("span", { class: "line" }, e[0] ? String(e[0]) : ""), make("span", {}, this.eventSaid(e)))));
    for (const line of this.visited || []) line.classList.remove("visited");
    this.visited = (s.ran || []).map((n) => this.source.children[n - 1]).filter(Boolean);
    for (const line of this.visited) line.classList.add("visited");
    this.event = -1;
    this.select(s.log.length - 1);
    this.markTime();
  }

  reveal(box, element) { // scroll the box alone, not the page
    if (!element) return;
    const top = element.offsetTop - box.offsetTop * (element.offsetParent !== box), bottom = top + element.offsetHeight;
    if (top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 3;
  }

  dim(step) { // tokens after those of the step: whole chunks at once, single tokens in the chunk where it ends
    if (this.canvas) return;
    const end = this.reached(step);
    this.chunks.forEach((chunk, c) => {
      const inside = c * CHUNK < end && end < (c + 1) * CHUNK;
      chunk.classList.toggle("later", c * CHUNK >= end);
      if (inside || chunk.dataset.split) {
        for (let i = c * CHUNK; i < Math.min(this.size, (c + 1) * CHUNK); i++) this.spans[i].classList.toggle("later", inside && i >= end);
        if (inside) chunk.dataset.split = "1";
        else delete chunk.dataset.split;
      }
    });
  }

  recell(before, step) { // cells that change between two steps
    const changed = new Set();
    for (let s = Math.max(0, Math.min(before, step)); s <= Math.max(before, step); s++) for (const e of this.run.steps[s].edits || []) changed.add(e[0]);
    if (before < 0) {
      this.fill(Infinity);
      for (const chunk of this.chunks) chunk.classList.remove("later");
    }
    const steps = Math.max(1, this.run.steps.length - 1);
    for (const i of changed) {
      const span = this.spans[i];
      if (!span) continue;
      let held = null;
      for (const edit of this.history[i]) if (edit[0] <= step) held = edit;
      const decided = held !== null && held[1] >= 0;
      const last = this.history[i][this.history[i].length - 1];
      span.replaceChildren(...(decided ? marked(held === last && this.run.tokens[i] === held[1] ? this.run.texts[i] : this.piece(held[1])) : ["░"]));
      span.classList.toggle("masked", !decided);
      span.classList.toggle("again", this.history[i].some((edit) => edit[0] === step && edit[1] < 0));
      span.style.borderBottomColor = decided ? age(held[0] / steps) : "";
      span.removeAttribute("title");
    }
  }

  showTrees(s) {
    const before = s.first ? this.run.texts[s.first - 1] : this.run.prompt[this.run.prompt.length - 1] || "";
    const shown = (s.trees || []).slice(0, MOST_TREES), trees = shown.map((tree) => nodesAt(this.trees[tree], this.step));
    this.drawn = trees.map((nodes, k) => new TreeView(nodes, this.run.pieces, before, this.run.omitted[shown[k]]));
    if (!trees.length) {
      const edits = s.edits || [], masked = edits.filter((e) => e[1] < 0).length, replaced = edits.filter((e) => e[3]).length;
      const decided = `${several(edits.length - masked - replaced, "position")} decided`;
      const said = edits.length ? `${decided}, ${replaced} replaced, ${masked} masked again${twice(s) ? `; ${several(twice(s), "cell")} changed twice or more` : ""}` : "This step drafted nothing.";
      this.stepPanel.replaceChildren(make("p", { class: "faint" }, said));
      return;
    }
    const tests = make("div", { class: "tests", tabindex: "0", role: "region", "aria-label": "Tests of this step" }, ...trees.map((nodes) => testTable(nodes, this.run.pieces)));
    if (s.trees.length > MOST_TREES) tests.append(make("p", { class: "faint" }, `${several(s.trees.length - MOST_TREES, "more tree")} not drawn`));
    this.stepPanel.replaceChildren(...this.drawn.map((tree) => tree.element), ...(tests.textContent ? [tests] : []));
    for (const tree of this.drawn) tree.draw();
  }

  eventSaid(e) {
    const [, rule, , kind, ...x] = e;
    const t = (token) => quoted(this.piece(token));
    const said = {
      ModelCall: () => `${x[0]} called for ${several(x[1], "distribution")}: ` + (this.canvas ? `${several(x[2], "position")} read${x[3] === null ? "" : `, ${x[3]} computed`}`
        : `reads the context${x[2] ? ` and ${several(x[2], "drafted token")}` : ""}`),
      Drafted: () => {
        const by = x[2] === "point" ? "" : ` from ${x[2]}`;
        return `drafted ${t(x[0])}${by}` + (x[3] ? ` with q ${number(x[1])}` : by ? `: chosen, score ${number(x[4])}` : ": chosen");
      },
      Grown: () => `drafted ${several(x[0], "token")}${x[1] === "point" ? "" : ` from ${x[1]}`}: ${x[2].map(t).join(" ")}${x[0] > x[2].length ? " ..." : ""}`,
      Accepted: () => `accepted ${t(x[0])} at depth ${x[1]}`,
      Rejected: () => `rejected ${t(x[0])} at depth ${x[1]}: ${x[2]}`,
      Emitted: () => `emitted ${t(x[0])} (${word(x[1])})`,
      Unmasked: () => `position ${x[0]} ${e.edit && e.edit[3] ? "replaced by" : "decided:"} ${t(x[1])}, confidence ${number(x[2])}`,
      Remasked: () => `position ${x[0]} masked again`,
      Committed: () => `committed ${several(x[0].length, "token")}${x[1] ? `, ${x[1]} cut` : ""}`,
      Noted: () => `${x[0]} = ${x[2] ? t(x[1]) : number(x[1])}`,
      Pruned: () => `${several(x[0], "draft")} pruned`,
      DraftEnded: () => `an error ended the draft of ${x[0]}: ${x[1]}`,
      Stopped: () => `ended by ${ENDED[x[0]] ?? x[0]}`,
    }[kind];
    return (said ? said() : kind) + (rule ? `  [${rule}]` : "");
  }

  select(event) { // an event of the step: its line is the current one
    const log = this.run.steps[this.step].log;
    event = Math.max(0, Math.min(log.length - 1, event));
    if (this.log.children[this.event]) this.log.children[this.event].classList.remove("current");
    if (this.line) this.line.classList.remove("current");
    this.event = event;
    const item = this.log.children[event];
    if (item) item.classList.add("current");
    if (item && (item.offsetTop < this.log.scrollTop || item.offsetTop + item.offsetHeight > this.log.scrollTop + this.log.clientHeight)) { // whole lines
      const top = item.offsetTop + item.offsetHeight - this.log.clientHeight;
      this.log.scrollTop = ([...this.log.children].find((other) => other.offsetTop >= Math.min(top, item.offsetTop)) ?? item).offsetTop;
    }
    let at = event;
    while (at > 0 && !log[at][0]) at--;
    this.line = this.source.children[log[at][0] - 1];
    if (this.line) {
      this.line.classList.add("current");
      this.line.setAttribute("aria-current", "step");
      this.reveal(this.source, this.line);
    }
  }

  markTime() {
    const s = this.run.steps[this.step];
    if (!s) return;
    if (this.time && s.t) {
      this.timeWindow.style.left = LABEL + s.t[0] * this.timeScale + "px";
      this.timeWindow.style.width = Math.max(3, (s.t[1] - s.t[0]) * this.timeScale) + "px";
    }
    if (this.cells && this.cellSize) {
      const { w, h } = this.cellSize;
      Object.assign(this.cellRow.style, { left: LABEL - 2 + "px", top: this.step * h - 1 + "px", width: this.run.positions * w + 4 + "px", height: h + 2 + "px" });
    }
  }

  differ(i) { // the first token that the other run does not have
    this.different = i;
    if (this.spans[i]) this.spans[i].classList.add("differs");
  }

  find(words, from) { // the first token at which the words are found, after a token
    if (!this.lower) {
      this.starts = [];
      let length = 0;
      for (const text of this.run.texts) { this.starts.push(length); length += text.length; }
      this.lower = this.run.texts.join("").toLowerCase();
    }
    for (const span of this.hits || []) span.classList.remove("hit");
    this.hits = [];
    const at = (after) => this.lower.indexOf(words.toLowerCase(), after);
    let found = at(from < 0 ? 0 : (this.starts[from] ?? 0) + 1);
    if (found < 0) found = at(0);
    if (!words || found < 0) return -1;
    let first = this.starts.findLastIndex((s) => s <= found);
    let last = this.starts.findLastIndex((s) => s < found + words.length);
    this.fill(Math.ceil((last + 1) / CHUNK));
    for (let i = first; i <= last; i++) { this.spans[i].classList.add("hit"); this.hits.push(this.spans[i]); }
    return first;
  }
}

function age(x) { return `hsl(${Math.round(140 + 130 * x)} 60% 50%)`; } // decided early: green; last: violet

class Page {
  constructor(data) {
    this.data = data;
    const main = document.querySelector("main");
    main.classList.toggle("two", data.runs.length > 1);
    this.views = data.runs.map((run) => {
      const root = make("article", { class: "run", "aria-label": run.name });
      main.append(root);
      return new RunView(run, root, (view, step) => this.go(view, step));
    });
    this.lead = this.views[0];
    this.slider = document.getElementById("slider");
    this.count = document.getElementById("count");
    this.slider.max = Math.max(1, ...this.views.map((v) => v.run.steps.length));
    this.compare();
    this.listen();
    for (const view of this.views) view.drawAll();
    const live = data.runs.some((run) => run.live);
    if (live) setTimeout(() => location.reload(), 1000); // the file is written anew while the run goes on
    const wanted = /step=(\d+)/.exec(location.hash);
    this.go(this.lead, wanted ? Number(wanted[1]) - 1 : live ? Infinity : this.lead.run.opens);
    this.live = live;
  }

  compare() {
    if (this.views.length < 2) return;
    const [a, b] = this.views.map((v) => v.run.tokens);
    const longest = Math.max(a.length, b.length);
    let i = 0;
    while (i < longest && a[i] === b[i]) i++;
    const bar = document.getElementById("difference");
    bar.classList.remove("hidden");
    this.different = i < longest ? i : -1;
    const { must, why: reason } = this.data.relation;
    if (i === longest) { bar.append(longest === 1 ? "Both commit the same token." : `Both commit the same ${longest} tokens.`); return; }
    document.documentElement.classList.toggle("alarm", must);
    if (must) bar.setAttribute("role", "alert");
    for (const view of this.views) view.differ(i);
    const said = this.views.map((v) => (i < v.run.tokens.length ? `${v.run.name}: ${quoted(v.piece(v.run.tokens[i]))}` : `${v.run.name} has ended`));
    const button = make("button", { id: "to-difference" }, "Go there (d)");
    button.addEventListener("click", () => this.toDifference());
    const same = i === 0 ? "" : i === 1 ? "The first token is the same. " : `The first ${i} tokens are the same. `;
    bar.append(`${same}First difference at token ${i + 1}: ${said.join(", ")}. `, button, make("div", {}, reason));
  }

  toDifference() { if (this.different >= 0) this.go(this.lead, this.lead.stepOf[Math.min(this.different, this.lead.size - 1)]); }

  go(view, step) { // the other run goes to the step that commits the same token, on a canvas to the same step
    const steps = view.run.steps.length;
    if (!steps) return;
    step = Math.max(0, Math.min(steps - 1, step));
    this.lead = view;
    view.go(step);
    for (const other of this.views) {
      if (other === view || !other.run.steps.length) continue;
      const token = Math.min(view.reached(step) - 1, other.size - 1);
      const same = view.canvas || other.canvas || token < 0 ? step : other.stepOf[token];
      other.go(Math.max(0, Math.min(other.run.steps.length - 1, same)));
    }
    this.slider.max = steps;
    this.slider.value = step + 1;
    if (this.live) location.hash = step + 1 < steps ? `step=${step + 1}` : ""; // the last step is followed
    this.count.textContent = `step ${step + 1} of ${steps}`;
  }

  move(by) { this.go(this.lead, this.lead.step + by); }

  find(again) {
    const words = document.getElementById("search").value;
    const found = this.lead.find(words, again ? this.found ?? -1 : -1);
    this.found = found;
    document.getElementById("found").textContent = !words ? "" : found < 0 ? "not found" : `token ${found + 1}`;
    if (found >= 0) this.go(this.lead, this.lead.stepOf[found]);
  }

  theme() {
    const root = document.documentElement;
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    for (const view of this.views) view.drawAll();
  }

  listen() {
    const on = (id, does) => document.getElementById(id).addEventListener("click", does);
    on("first", () => this.go(this.lead, 0));
    on("back", () => this.move(-1));
    on("next", () => this.move(1));
    on("last", () => this.go(this.lead, Infinity));
    on("theme", () => this.theme());
    on("ask", () => document.getElementById("help").showModal());
    on("close", () => document.getElementById("help").close());
    this.slider.addEventListener("input", () => this.go(this.lead, Number(this.slider.value) - 1));
    const search = document.getElementById("search");
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.find(true);
      if (event.key === "Escape") search.blur();
    });
    search.addEventListener("input", () => this.find(false));
    let waiting = 0;
    window.addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.views.forEach((view) => view.drawAll()), 100);
    });
    const root = document.documentElement;
    let shown = root.dataset.theme;
    const drawn = (theme) => { // canvases have the colours that they were drawn with
      root.dataset.theme = theme;
      this.views.forEach((view) => view.drawAll());
    };
    window.addEventListener("beforeprint", () => { shown = root.dataset.theme; drawn("light"); });
    window.addEventListener("afterprint", () => drawn(shown));
    document.addEventListener("keydown", (event) => {
      if (event.target.tagName === "INPUT" && event.target.type !== "range") return;
      if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
      const does = {
        ArrowRight: () => this.move(1), ArrowLeft: () => this.move(-1), Home: () => this.go(this.lead, 0), End: () => this.go(this.lead, Infinity),
        PageDown: () => this.move(10), PageUp: () => this.move(-10),
        ArrowDown: () => this.lead.select(this.lead.event + 1), ArrowUp: () => this.lead.select(this.lead.event - 1),
        "/": () => search.focus(), n: () => this.find(true), t: () => this.theme(), d: () => this.toDifference(),
        "?": () => document.getElementById("help").showModal(),
      }[event.key];
      if (!does) return;
      event.preventDefault();
      const start = performance.now();
      does();
      void document.body.offsetHeight; // the layout is part of what a key costs
      document.body.dataset.keyMs = String(performance.now() - start);
    });
  }
}

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
window.page = new Page(DATA);
