// Contexts below the charts, and which device was freest: bands in the same
// time.

const bandHeight = 17;
const mostLanes = 12;

// lanes gives each thread of a process as many rows as its contexts are deep.
function lanes(bands) {
  const rows = new Map();
  const keys = [...new Set(bands.map((b) => [b.pid, b.thread, b.depth].join(" ")))]
    .map((k) => k.split(" ").map(Number)).sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
  keys.slice(0, mostLanes).forEach((k, i) => rows.set(k.join(" "), i));
  return rows;
}

function bandChart(view, trace) {
  const runs = (trace.devices.devices || []).length > 1 ? trace.devices.runs || [] : [];
  if (trace.bands.length === 0 && runs.length === 0) return el("div");
  const rows = lanes(trace.bands);
  const colours = new Map([...new Set(trace.bands.map((b) => b.name))].map((n, i) => [n, i % 4]));
  const first = runs.length ? 1 : 0;
  const height = (rows.size + first) * bandHeight + room.bottom;
  const picture = svg("svg", { height, role: "img", "aria-label": "contexts over time" });
  const readout = el("p", { class: "readout" });
  const hidden = trace.bands.filter((b) => !rows.has([b.pid, b.thread, b.depth].join(" "))).length + (trace.bands_left_out || 0);
  const draw = () => {
    picture.replaceChildren();
    timeAxis(picture, view, height - room.bottom);
    const wide = plotWidth(picture);
    const clip = svg("svg", { x: room.left, y: 0, width: wide, height, viewBox: `${room.left} 0 ${wide} ${height}` });
    const put = (from, to, row, colour, name, title) => {
      if (to < view.from || from > view.to) return;
      const x = xOf(view, picture, Math.max(from, view.from)), w = xOf(view, picture, Math.min(to, view.to)) - x;
      const rect = svg("rect", { class: (w > 4 ? "band parted band" : "band band") + colour, x, y: row * bandHeight + 1, width: Math.max(w, 0.7), height: bandHeight - 2 }, svg("title", {}, title));
      rect.addEventListener("pointerenter", () => readout.replaceChildren(title));
      clip.append(rect);
      const fits = Math.floor((w - 6) / 6.4);
      if (fits >= 2) {
        const text = label(x + 4, row * bandHeight + 13, name.length > fits ? name.slice(0, Math.max(fits - 1, 1)) + "…" : name, "start");
        text.setAttribute("class", "bandname");
        clip.append(text);
      }
    };
    for (const r of runs) put(Number(r.from_ns), Number(r.to_ns), 0, Number(r.device) % 4, deviceName(r.device), "freest: " + deviceName(r.device) + ", " + human(big(r.free_at_start)) + " free at " + seconds(big(r.from_ns)));
    for (const b of trace.bands) {
      const row = rows.get([b.pid, b.thread, b.depth].join(" "));
      if (row !== undefined) put(Number(b.begin), Number(b.end), row + first, colours.get(b.name), b.name, bandWords(b));
    }
    picture.append(clip);
    if (first) picture.append(label(room.left - 8, 13, "freest", "end"));
    for (const [k, row] of rows) {
      const [, thread, depth] = k.split(" ");
      if (depth === "0" || row === 0) picture.append(label(room.left - 8, (row + first) * bandHeight + 13, "tid " + thread, "end"));
    }
  };
  view.redraw.push(draw);
  const box = el("div", { class: "chart" }, el("h3", {}, trace.bands.length ? "Contexts" : "Freest device"), picture, readout);
  if (hidden > 0) box.append(el("p", { class: "dim" }, plural(BigInt(hidden), "shorter or deeper context") + " not drawn."));
  new ResizeObserver(draw).observe(box);
  return box;
}

function bandWords(b) {
  const bytes = b.known ? `used ${human(big(b.used))} (${grouped(big(b.used))}), peaked ${human(big(b.peaked))} (${grouped(big(b.peaked))})` : "bytes unknown";
  return `${b.name}#${b.n}: ${seconds(big(b.begin))} to ${b.open ? "(open)" : seconds(big(b.end))}, ${bytes}`;
}
