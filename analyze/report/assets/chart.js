// Memory over time. The charts of a trace share their time: what is brushed in
// one is zoomed in all. Places on the screen are floats; bytes never are, but
// where they become a height.

const curveNames = { used: "used", acquired: "acquired", nvml: "NVML" };
const room = { left: 74, right: 12, top: 16, bottom: 22 };
const chartHeight = 210;

// timeline makes the charts of one trace. choose is told of a device and a
// moment that somebody wants to see.
function timeline(trace, choose) {
  const curves = trace.curves.map((c) => ({ ...c, from: Number(c.from), to: Number(c.to), width: Number(c.width), least: bigs(c.least), most: bigs(c.most) }));
  const span0 = { from: Math.min(0, ...curves.map((c) => c.from)), to: Math.max(1, ...curves.map((c) => c.to), ...trace.bands.map((b) => Number(b.end)), ...list(trace.devices.runs).map((r) => Number(r.to_ns))) };
  if (curves.length) span0.from = Math.min(...curves.map((c) => c.from));
  span0.to = Math.max(span0.to, span0.from + 1 + Math.abs(span0.from) / 1e12); // a moment has a width too
  const view = { ...span0, hidden: new Set(), cursor: null, redraw: [] };
  view.draw = () => view.redraw.forEach((f) => f());
  view.zoom = (from, to) => {
    const least = Math.max(1e3, (span0.to - span0.from) / 1e6);
    if (to - from < least) [from, to] = [(from + to - least) / 2, (from + to + least) / 2];
    view.from = Math.max(span0.from, from);
    view.to = Math.min(span0.to, to);
    reset.disabled = view.from === span0.from && view.to === span0.to;
    view.draw();
  };
  view.reset = () => view.zoom(span0.from, span0.to);
  view.whole = span0;
  const reset = el("button", { type: "button", disabled: true, click: view.reset }, "whole time");
  const busy = trace.bands.length > 0 && el("button", { type: "button", click: () => view.zoom(...bandSpan(trace)) }, "time of the contexts");
  const keys = Object.keys(curveNames).filter((k) => curves.some((c) => c.curve === k)).map((k) => key(k, view));
  const devices = [...new Set(curves.map((c) => c.device))];
  const out = el("div", {}, el("div", { class: "controls" }, keys, reset, busy || "",
    el("span", { class: "dim" }, "Drag to zoom, click to see what was live. Keys: ← → move, + − zoom, Enter shows, Esc resets.")));
  if (devices.length === 0) out.append(el("p", { class: "dim" }, "No device memory was in use in this time."));
  for (const name of devices) {
    const failures = marks(trace, name);
    out.append(el("h3", {}, name + nameOfDevice(trace, name)), deviceChart(view, name, curves.filter((c) => c.device === name), failures, capacity(trace, name), choose));
  }
  out.append(bandChart(view, trace));
  return out;
}

// bandSpan is from the first context to the last, with some room.
function bandSpan(trace) {
  const from = Math.min(...trace.bands.map((b) => Number(b.begin))), to = Math.max(...trace.bands.map((b) => Number(b.end)));
  return [from - (to - from) / 40, to + (to - from) / 40];
}

function nameOfDevice(trace, name) {
  const d = (trace.devices.devices || []).find((d) => deviceName(d.device) === name);
  return d && d.name ? " · " + d.name : "";
}

function capacity(trace, name) {
  const d = (trace.devices.devices || []).find((d) => deviceName(d.device) === name);
  return d && big(d.total) > 0n ? big(d.total) : null;
}

// marks are the failures on a device: what the program was told, and what only
// the driver knew.
function marks(trace, name) {
  const on = (f) => deviceName(f.device) === name;
  return [
    ...(trace.oom.failures || []).filter(on).map((f) => ({ at: Number(f.at_ns), kind: "failed", words: "out of memory: " + human(big(f.asked)) + " asked for" })),
    ...(trace.oom.retried || []).filter(on).map((f) => ({ at: Number(f.first_ns), kind: "retried", words: "refused, and a retry worked: " + human(big(f.largest)) })),
  ];
}

function key(name, view) {
  const line = svg("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" }, svg("path", { d: "M0 5H28", class: "curve " + name }));
  const button = el("button", { type: "button", "aria-pressed": "true", class: "key chart" }, line, curveNames[name]);
  button.addEventListener("click", () => {
    view.hidden[view.hidden.has(name) ? "delete" : "add"](name);
    button.setAttribute("aria-pressed", String(!view.hidden.has(name)));
    view.draw();
  });
  return button;
}

function deviceChart(view, name, curves, failures, total, choose) {
  const readout = el("p", { class: "readout", "aria-live": "polite" });
  const picture = svg("svg", { height: chartHeight, tabindex: "0", role: "img", "aria-label": "memory of " + name + " over time" });
  const box = el("div", { class: "chart" }, picture, readout);
  const shown = () => curves.filter((c) => !view.hidden.has(c.curve));
  const draw = () => drawChart(picture, view, shown(), failures, total);
  const tell = () => readout.replaceChildren(...words(view, shown(), failures));
  view.redraw.push(() => { draw(); tell(); });
  steer(picture, view, (at) => choose(name, at), () => (curves[0] ? curves[0].width : 1));
  new ResizeObserver(draw).observe(box);
  return box;
}

const plotWidth = (picture) => Math.max(60, picture.clientWidth - room.left - room.right);
const xOf = (view, picture, t) => room.left + ((t - view.from) / (view.to - view.from)) * plotWidth(picture);
const timeAt = (view, picture, x) => view.from + (Math.min(Math.max(x - room.left, 0), plotWidth(picture)) / plotWidth(picture)) * (view.to - view.from);

// range is which buckets of a curve are seen.
function range(c, view) {
  const at = (t) => Math.min(c.most.length - 1, Math.max(0, Math.floor((t - c.from) / c.width)));
  return [at(view.from), at(view.to)];
}

// drawChart draws all anew: the axes, what is between least and most of each
// bucket as an area with its upper edge, and the failures.
function drawChart(picture, view, curves, failures, total) {
  const bottom = chartHeight - room.bottom, right = room.left + plotWidth(picture);
  let top = 1n;
  for (const c of curves) {
    const [a, b] = range(c, view);
    for (let i = a; i <= b; i++) if (c.most[i] > top) top = c.most[i];
  }
  const step = niceStep(top), y = (v) => bottom - (Number(v) / (Number(top) * 1.06)) * (bottom - room.top);
  picture.replaceChildren();
  for (let v = 0n; v <= top; v += step) {
    picture.append(svg("path", { class: "grid", d: `M${room.left} ${y(v)}H${right}` }), label(room.left - 8, y(v) + 4, tick(v, top), "end"));
  }
  timeAxis(picture, view, bottom);
  if (total && total <= (top * 106n) / 100n) {
    picture.append(svg("path", { class: "total", fill: "none", d: `M${room.left} ${y(total)}H${right}` }), label(right, y(total) - 4, "total " + human(total), "end"));
  }
  const clip = svg("svg", { x: room.left, y: 0, width: plotWidth(picture), height: chartHeight, viewBox: `${room.left} 0 ${plotWidth(picture)} ${chartHeight}` });
  for (const c of [...curves].reverse()) { // used above the others
    const [area, edge] = paths(c, view, picture, y);
    clip.append(svg("path", { class: "area " + c.curve, d: area }), svg("path", { class: "curve " + c.curve, d: edge }));
  }
  for (const f of failures) {
    const x = xOf(view, picture, f.at);
    clip.append(svg("path", { class: f.kind, d: `M${x} ${room.top}V${bottom}` }, svg("title", {}, f.words + " at " + seconds(BigInt(Math.round(f.at))))));
    const nearRight = x > right - 46;
    const text = label(nearRight ? x - 4 : x + 4, 12, f.kind === "failed" ? "✕ OOM" : "↻", nearRight ? "end" : "start");
    text.setAttribute("class", f.kind);
    clip.append(text);
  }
  if (view.cursor !== null && view.cursor >= view.from && view.cursor <= view.to) {
    const x = xOf(view, picture, view.cursor);
    clip.append(svg("path", { class: "cursor", d: `M${x} ${room.top}V${bottom}` }));
  }
  picture.append(clip);
}

function paths(c, view, picture, y) {
  const [a, b] = range(c, view);
  const x = (i) => xOf(view, picture, Math.min(c.from + i * c.width, c.to));
  let up = "", down = "", edge = "";
  for (let i = a; i <= b; i++) {
    up += `${i === a ? "M" : "L"}${x(i).toFixed(1)} ${y(c.most[i]).toFixed(1)}H${x(i + 1).toFixed(1)}`;
    edge = up;
  }
  for (let i = b; i >= a; i--) down += `L${x(i + 1).toFixed(1)} ${y(c.least[i]).toFixed(1)}H${x(i).toFixed(1)}`;
  return [up + down + "Z", edge];
}

function label(x, y, words, anchor) {
  return svg("text", { x, y, "text-anchor": anchor }, words);
}

// niceStep is a power of two, so that labels are whole KiB, MiB, GiB.
function niceStep(top) {
  let step = 1n;
  while (step * 5n < top) step *= 2n;
  return step;
}

// tick is in the unit of the highest value: a step's share of it has few digits.
function tick(v, top) {
  const unit = human(top).split(" ")[1];
  return Number(v) / 1024 ** units.indexOf(unit) + " " + unit;
}

function timeAxis(picture, view, bottom) {
  const wide = plotWidth(picture), many = Math.max(2, Math.floor(wide / 110));
  let step = 10 ** Math.ceil(Math.log10((view.to - view.from) / many));
  for (const part of [5, 2]) if ((view.to - view.from) / (step / part) <= many) { step /= part; break; }
  step = Math.max(step, 1); // nanoseconds have no parts
  const [unit, one] = view.to - view.from >= 1e9 ? ["s", 1e9] : view.to - view.from >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
  const digits = Math.max(0, Math.min(3, -Math.floor(Math.log10(step / one) + 1e-9)));
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = xOf(view, picture, t);
    picture.append(svg("path", { class: "grid", d: `M${x} ${bottom}v4` }));
    if (x < room.left + wide - 8) picture.append(label(x, bottom + 17, (t / one).toFixed(digits) + " " + unit, "middle"));
  }
}

// words say what the curves have at the cursor, to the byte.
function words(view, curves, failures) {
  if (view.cursor === null) return [];
  const out = [el("b", {}, seconds(BigInt(Math.round(view.cursor))))];
  for (const c of curves) {
    const i = Math.floor((view.cursor - c.from) / c.width);
    if (i < 0 || i >= c.most.length) continue;
    const same = c.least[i] === c.most[i];
    out.push(" · " + curveNames[c.curve] + " ", el("b", {}, (same ? "" : human(c.least[i]) + " to ") + human(c.most[i])),
      " (" + (same ? "" : grouped(c.least[i]) + " to ") + grouped(c.most[i]) + ")");
  }
  const near = failures.find((f) => Math.abs(f.at - view.cursor) < (view.to - view.from) / 200);
  if (near) out.push(" · ", el("b", {}, near.words));
  return out;
}

// steer lets a picture be brushed, clicked and moved about in by keys.
function steer(picture, view, choose, width) {
  let from = null, brush = null;
  const x = (e) => e.clientX - picture.getBoundingClientRect().left;
  picture.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    from = x(e);
    picture.setPointerCapture(e.pointerId);
  });
  picture.addEventListener("pointermove", (e) => {
    view.cursor = timeAt(view, picture, x(e));
    view.draw();
    if (from === null) return;
    brush = svg("rect", { class: "brush", x: Math.min(from, x(e)), y: room.top, width: Math.abs(x(e) - from), height: chartHeight - room.top - room.bottom });
    picture.append(brush);
  });
  picture.addEventListener("pointerup", (e) => {
    if (from === null) return;
    const a = timeAt(view, picture, Math.min(from, x(e))), b = timeAt(view, picture, Math.max(from, x(e)));
    const brushed = Math.abs(x(e) - from) > 5;
    from = brush = null;
    if (brushed) view.zoom(a, b);
    else choose((view.cursor = a));
  });
  picture.addEventListener("pointercancel", () => { from = null; view.draw(); });
  picture.addEventListener("dblclick", view.reset);
  picture.addEventListener("keydown", (e) => {
    const wide = view.to - view.from, at = view.cursor ?? (view.from + view.to) / 2;
    const go = (t) => {
      view.cursor = Math.min(view.whole.to, Math.max(view.whole.from, t));
      if (view.cursor < view.from || view.cursor > view.to) view.zoom(view.cursor - wide / 2, view.cursor + wide / 2);
      else view.draw();
    };
    const keys = {
      ArrowLeft: () => go(at - width() * (e.shiftKey ? 10 : 1)), ArrowRight: () => go(at + width() * (e.shiftKey ? 10 : 1)),
      "+": () => view.zoom(at - wide / 4, at + wide / 4), "=": () => view.zoom(at - wide / 4, at + wide / 4), "-": () => view.zoom(at - wide, at + wide),
      Escape: view.reset, Home: () => go(view.whole.from), End: () => go(view.whole.to), Enter: () => choose(at),
    };
    if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    keys[e.key]();
  });
}
