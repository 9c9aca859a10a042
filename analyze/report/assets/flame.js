// The flame graph: the root above, callees below, widths by bytes. What is
// smaller than a pixel or two is not drawn, and counts in what is around it.

const rowHeight = 21;
const leastShare = 0.0012;
const viewWords = { peak: "at the peak", moment: "at another moment", total: "all that was ever taken", end: "live at the end" };

// flameGraph makes the section. The function it returns shows what was live on
// a device at a moment.
function flameGraph() {
  const state = { view: page.views.find((v) => v.kind === "peak") || page.views[0], curve: "used", root: 0, words: "", at: 0 };
  const still = page.views.filter((v) => v.kind !== "moment");
  const pick = el("select", { "aria-label": "what to show", change: () => pickView() });
  const slider = el("input", { type: "range", min: 0, step: 1, value: 0, "aria-label": "moment", input: () => show(moments()[Number(slider.value)]) });
  const sliderBox = el("label", {}, "moment", slider);
  const search = el("input", { type: "search", placeholder: "search lines", "aria-label": "search lines", input: () => { state.words = search.value.toLowerCase(); draw(); } });
  const out = el("button", { type: "button", click: () => { state.root = 0; draw(); } }, "whole graph");
  const title = el("p", { class: "readout", id: "flame-what", "aria-live": "polite" });
  const found = el("p", { class: "readout", id: "flame-found", "aria-live": "polite" });
  const detail = el("p", { class: "readout", id: "flame-detail" });
  const canvas = el("div", { class: "flame", role: "group", "aria-label": "flame graph: arrow keys move, Enter goes into a line, Backspace out of it" });
  const curves = ["used", "acquired"].map((c) => el("button", { type: "button", click: () => { state.curve = c; draw(); } }, c));
  const groups = momentGroups();
  options();

  function options() {
    still.forEach((v, i) => pick.append(el("option", { value: "still " + i }, viewName(v))));
    groups.forEach((g, i) => pick.append(el("option", { value: "group " + i }, "other moments of " + where(g[0]))));
  }
  function moments() {
    return groups.find((g) => g.includes(state.view)) || [];
  }
  function pickView() {
    const [kind, i] = pick.value.split(" ");
    show(kind === "still" ? still[Number(i)] : groups[Number(i)][0]);
  }
  function show(v) {
    state.view = v;
    state.root = 0;
    const g = moments();
    sliderBox.hidden = g.length < 2;
    if (g.length) {
      slider.max = String(g.length - 1);
      slider.value = String(g.indexOf(v));
      pick.value = "group " + groups.indexOf(g);
    } else {
      pick.value = "still " + still.indexOf(v);
    }
    draw();
  }
  function draw() {
    const v = state.view;
    const t = tree(v, state.curve);
    if (state.root !== 0 && !t.sum.has(state.root)) state.root = 0;
    curves.forEach((b) => b.setAttribute("aria-pressed", String(b.textContent === state.curve)));
    out.disabled = state.root === 0;
    const total = big(v[state.curve]);
    title.replaceChildren(el("b", {}, viewName(v)), ": ", ...bytes(total), " " + state.curve);
    const g = moments();
    if (g.length > 1) title.append(el("span", { class: "dim" }, " · the highest of its stretch of time; the page keeps " + g.length + " of them. Any other: ", el("code", {}, "gpuanalyze lines --at TIME")));
    search.disabled = t.total === 0n;
    const boxes = layout(t, state.root);
    const matches = (n) => state.words !== "" && n !== 0 && nameOf(n).toLowerCase().includes(state.words);
    const hits = state.words === "" ? null : matched(t, matches);
    found.textContent = hits ? `${hits.count === 0 ? "no line matches" : plural(BigInt(hits.count), "place") + " with " + human(hits.bytes) + " (" + grouped(hits.bytes) + "), " + percent(hits.bytes, t.total)}` : "";
    canvas.style.height = (Math.max(...boxes.map((b) => b.row), 0) + 1) * rowHeight + 2 + "px";
    canvas.replaceChildren(...boxes.map((b, i) => box(b, i, t, matches(b.node))));
    canvas.hidden = t.total === 0n;
    tell(state.root, t);
  }
  function box(b, i, t, found) {
    const name = nameOf(b.node);
    const e = el("div", {
      class: `box ${kindOf(b.node)}${found ? " found" : ""}${b.above ? " above" : ""}`, tabindex: i === 0 ? "0" : "-1", role: "button", "data-node": b.node,
      "aria-label": name + ", " + exactly(t.sum.get(b.node)), click: () => into(b.node),
      pointerenter: () => tell(b.node, t), focus: () => tell(b.node, t), keydown: (ev) => keys(ev, b),
    }, b.width > 0.02 ? shortName(name) : "");
    e.style.left = b.x * 100 + "%";
    e.style.width = b.width * 100 + "%";
    e.style.top = b.row * rowHeight + 1 + "px";
    return e;
  }
  function into(node) {
    state.root = node;
    draw();
    focus(node);
  }
  function focus(node) {
    const e = canvas.querySelector(`[data-node="${node}"]`);
    if (e) e.focus();
  }
  function keys(ev, b) {
    const boxes = [...canvas.children].map((e) => ({ e, top: e.offsetTop, left: e.offsetLeft, width: e.offsetWidth }));
    const at = boxes.find((o) => o.e === ev.currentTarget);
    const over = (o) => o.left < at.left + at.width && o.left + o.width > at.left;
    const go = { ArrowDown: (o) => o.top > at.top && over(o), ArrowUp: (o) => o.top < at.top && over(o), ArrowRight: (o) => o.top === at.top && o.left > at.left, ArrowLeft: (o) => o.top === at.top && o.left < at.left }[ev.key];
    if (go) {
      const far = (o) => Math.abs(o.top - at.top) * 1e4 + Math.abs(o.left - at.left);
      const next = boxes.filter(go).sort((a, b) => far(a) - far(b))[0];
      if (next) next.e.focus();
    } else if (ev.key === "Enter" || ev.key === " ") into(b.node);
    else if (ev.key === "Backspace") into(Math.max(0, nodes.parent[state.root]));
    else if (ev.key === "Escape") into(0);
    else return;
    ev.preventDefault();
  }
  function tell(node, t) {
    const n = t.sum.get(node) || 0n;
    detail.replaceChildren(el("b", { class: "mono" }, nameOf(node)), " ", ...bytes(n), ", " + percent(n, t.total));
  }

  show(state.view);
  const legend = el("p", { class: "dim" }, [["o", "own code (inferred from file names)"], ["i", "installed code"], ["n", "native"], ["t", "thread or label"], ["r", "smaller ones, summed up"]]
    .map(([k, w]) => el("span", {}, el("i", { class: "swatch " + k }), w + "   ")));
  const body = el("div", {}, el("div", { class: "controls" }, pick, sliderBox, curves, search, out), title, canvas, detail, found, legend);
  return { body, choose: (trace, device, at) => chooseMoment(trace, device, at, show) };
}

// layout places what is below a root, and what is above it in full width.
function layout(t, root) {
  const boxes = [];
  const above = [];
  for (let n = nodes.parent[root]; root !== 0 && n >= 0; n = nodes.parent[n]) above.unshift(n);
  above.forEach((node, row) => boxes.push({ node, row, x: 0, width: 1, above: true }));
  const whole = t.sum.get(root) || 0n;
  if (whole <= 0n) return boxes;
  const todo = [{ node: root, row: above.length, x: 0, width: 1 }];
  while (todo.length) {
    const b = todo.shift();
    boxes.push(b);
    let x = b.x;
    for (const c of t.children.get(b.node) || []) {
      const width = Number((t.sum.get(c) * 1000000n) / whole) / 1e6;
      if (width >= leastShare) todo.push({ node: c, row: b.row + 1, x, width });
      x += width;
    }
  }
  return boxes;
}

// matched counts a byte once, however many lines of its stack match.
function matched(t, matches) {
  let bytes = 0n, count = 0;
  const todo = [0];
  while (todo.length) {
    const n = todo.pop();
    if (matches(n)) {
      bytes += t.sum.get(n);
      count++;
      continue;
    }
    todo.push(...(t.children.get(n) || []));
  }
  return { bytes, count };
}

// shortName leaves the folders of a path out.
const shortName = (name) => name.replace(/^.*\/(?=[^/]*:\d+:)/, "");

function where(v) {
  return (several ? traceName(v.trace) + ", " : "") + (v.device === undefined ? "all devices" : deviceName(v.device));
}

function viewName(v) {
  return v.kind === "total" || v.kind === "end" ? viewWords[v.kind] : `${v.kind === "peak" ? "at the peak" : "live"} ${v.kind === "peak" ? "of" : "on"} ${where(v)}, ${seconds(big(v.at))}`;
}

function momentGroups() {
  const groups = new Map();
  for (const v of page.views.filter((v) => v.kind === "moment")) {
    const k = v.trace + " " + v.device;
    if (!groups.has(k)) groups.set(k, []);
    groups.get(k).push(v);
  }
  return [...groups.values()];
}

// chooseMoment shows the kept moment that is nearest to one that was clicked.
function chooseMoment(trace, device, at, show) {
  const far = (v) => Math.abs(Number(v.at) - at);
  const near = page.views.filter((v) => v.kind === "moment" && v.trace === trace && deviceName(v.device) === device).sort((a, b) => far(a) - far(b))[0];
  if (!near) return;
  show(near);
  document.getElementById("flame").scrollIntoView({ block: "nearest" });
}
