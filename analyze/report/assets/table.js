// A table that sorts by its heads. The row that sums up the others stays last.

// cells are how a column's values are shown and compared.
const cells = {
  text: { show: (v) => v, compare: (a, b) => (a < b ? -1 : a > b ? 1 : 0) },
  count: { number: true, show: (v) => (v === null ? "–" : grouped(v)), compare: (a, b) => (a < b ? -1 : a > b ? 1 : 0) },
  time: { number: true, show: (v) => (v === null ? "–" : seconds(v)), compare: (a, b) => (a < b ? -1 : a > b ? 1 : 0) },
  span: { number: true, show: (v) => span(v), compare: (a, b) => (a < b ? -1 : a > b ? 1 : 0) },
  bytes: {
    number: true,
    show: (v) => (v === null ? "–" : [human(v), v > -1024n && v < 1024n ? "" : el("small", {}, grouped(v))]),
    compare: (a, b) => (a === b ? 0 : a === null ? -1 : b === null ? 1 : a < b ? -1 : 1),
  },
};

// onPaper is how many rows are printed; page.css hides the others.
const onPaper = 40;

// table makes one of columns {key, title, kind, bar, hint} and rows. A row may have
// rest, and depth for its name's indent.
function table(columns, rows, { sort, filter, caption } = {}) {
  let by = sort || "", down = true, words = "";
  const body = el("tbody");
  const heads = columns.map((c) => {
    const cell = cells[c.kind];
    const button = el("button", { type: "button", title: c.hint, click: () => order(c.key) }, c.title);
    return el("th", { class: cell.number ? "n" : "", scope: "col" }, button);
  });
  function order(key) {
    const column = columns.find((c) => c.key === key);
    down = by === key ? !down : cells[column.kind].number;
    by = key;
    fill();
  }
  function fill() {
    const column = columns.find((c) => c.key === by);
    let shown = rows.filter((r) => !words || columns.some((c) => c.kind === "text" && String(r[c.key]).toLowerCase().includes(words)));
    if (column) {
      const compare = cells[column.kind].compare;
      shown = [...shown].sort((a, b) => (a.rest ? 1 : 0) - (b.rest ? 1 : 0) || (down ? -1 : 1) * compare(a[by], b[by]));
    }
    heads.forEach((th, i) => {
      const on = columns[i].key === by;
      th.setAttribute("aria-sort", on ? (down ? "descending" : "ascending") : "none");
      th.firstChild.textContent = columns[i].title + (on ? (down ? " ▾" : " ▴") : "");
    });
    const most = new Map(columns.filter((c) => c.bar).map((c) => [c.key, rows.reduce((m, r) => (r[c.key] > m ? r[c.key] : m), 1n)]));
    body.replaceChildren(...shown.map((r) => row(r, most)));
    if (shown.length === 0) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "dim" }, rows.length ? "nothing matches" : "nothing")));
  }
  function row(r, most) {
    return el("tr", { class: r.rest ? "rest" : "" }, columns.map((c) => {
      const cell = cells[c.kind];
      const td = el("td", { class: cell.number ? "n" : c.plain ? "" : "name" }, cell.show(r[c.key]));
      if (c.key === columns[0].key && r.depth && by === "") td.style.paddingLeft = 0.7 + 1.2 * Math.min(r.depth, 12) + "rem";
      if (c.bar) {
        const bar = el("span", { class: "bar" });
        bar.style.width = Math.max(0, Math.min(100, Number((r[c.key] * 1000n) / most.get(c.key)) / 10)) + "%";
        if (r[c.key] > 0n) td.append(bar);
      }
      return td;
    }));
  }
  fill();
  const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
  const paper = rows.length > onPaper ? el("p", { class: "onpaper dim" }, "The first " + onPaper + " of " + rows.length + " rows; the page has all on the screen.") : "";
  if (!filter || rows.length < 8) return paper ? el("div", {}, box, paper) : box;
  const input = el("input", { type: "search", placeholder: "filter rows", "aria-label": "filter rows of " + caption, input: () => { words = input.value.toLowerCase(); fill(); } });
  return el("div", {}, el("div", { class: "controls" }, input), box, paper);
}
