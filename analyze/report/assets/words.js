// Elements, and numbers as people read them. Names come from the recorded
// program: they reach the document as text, never as markup.

function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  set(e, attributes);
  e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(e, attributes);
  e.append(...children);
  return e;
}

function set(e, attributes) {
  for (const [k, v] of Object.entries(attributes || {})) {
    if (typeof v === "function") e.addEventListener(k, v);
    else if (v !== null && v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
}

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

// human is a size with two decimals, as gpuanalyze prints it.
function human(n) {
  const sign = n < 0n ? "-" : "";
  let size = n < 0n ? -n : n;
  if (size < 1024n) return sign + size + " B";
  let unit = 0, one = 1n;
  while (unit < 6 && size * 1000n >= one * 1023995n) {
    one *= 1024n;
    unit++;
  }
  const hundredths = (size * 200n + one) / (2n * one);
  return sign + hundredths / 100n + "." + String(hundredths % 100n).padStart(2, "0") + " " + units[unit];
}

// grouped is every digit, by thousands.
function grouped(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ",");
}

const exactly = (n) => grouped(n) + " bytes";

// bytes is both: to read, and to rely on.
function bytes(n) {
  return n > -1024n && n < 1024n ? [human(n)] : [human(n), " ", el("span", { class: "dim" }, "(" + grouped(n) + ")")];
}

// seconds is a moment as --from and --at read it.
function seconds(ns) {
  const sign = ns < 0n ? "-" : "";
  const micros = ((ns < 0n ? -ns : ns) + 500n) / 1000n;
  return sign + micros / 1000000n + "." + String(micros % 1000000n).padStart(6, "0") + "s";
}

// span is how long something took.
function span(ns) {
  const s = Number(ns) / 1e9;
  if (s >= 7200) return (s / 3600).toFixed(1) + " h";
  if (s >= 120) return (s / 60).toFixed(1) + " min";
  if (s >= 1) return s.toFixed(2) + " s";
  return s >= 1e-3 ? (s * 1e3).toFixed(2) + " ms" : (s * 1e6).toFixed(1) + " µs";
}

function percent(part, of) {
  return of > 0n ? (Number((part * 100000n) / of) / 1000).toFixed(1) + " %" : "–";
}

const plural = (n, word) => grouped(n) + " " + word + (n === 1n ? "" : "s");

function facts(...rows) {
  return el("dl", { class: "facts" }, rows.filter(Boolean).flatMap(([name, ...value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
