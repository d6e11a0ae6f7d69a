// A live run: what the server tells of its recording, drawn as it comes. Text is only ever text.
const SVG = "http://www.w3.org/2000/svg";
const place = document.getElementById("live");
const put = (id, text) => { document.getElementById(id).textContent = text; };
const number = (value) => value.toLocaleString("en");
const seconds = new Map();
const SHOWN = 120, TROUBLES = 50;

function draw() {
  const chart = document.getElementById("chart");
  const last = Math.max(0, ...seconds.keys()), first = Math.max(0, last - SHOWN + 1);
  const span = Math.max(10, last - first + 1), width = 600 / span;
  const shown = [...seconds].filter(([second]) => second >= first);
  const most = Math.max(1, ...shown.map(([, counts]) => counts[0] + counts[1] + counts[2]));
  const bars = [];
  for (const [second, [ok, fail, info]] of shown) {
    let top = 120;
    for (const [kind, count] of [["ok", ok], ["info", info], ["fail", fail]]) {
      if (!count) continue;
      const height = (120 * count) / most;
      top -= height;
      const bar = document.createElementNS(SVG, "rect");
      const values = { class: kind, x: (second - first) * width, y: top, width: width * 0.9, height };
      for (const [name, value] of Object.entries(values)) bar.setAttribute(name, value);
      bars.push(bar);
    }
  }
  chart.replaceChildren(...bars);
  put("top", `to ${number(most)} a second, the last ${span} s`);
}

function tell(part) {
  for (const [second, ...counts] of part.seconds) seconds.set(second, counts);
  for (const second of seconds.keys()) if (second < part.at_ns / 1e9 - 2 * SHOWN) seconds.delete(second);
  put("at", `${(part.at_ns / 1e9).toFixed(1)} s`);
  put("phase", part.phase || "–");
  put("faults", part.faults.join(", ") || "none");
  for (const kind of ["ok", "fail", "info"]) put(kind, number(part.totals[kind]));
  put("open", number(part.open));
  const whole = Math.floor(part.at_ns / 1e9) - 1;
  put("rate", number(seconds.get(whole)?.[0] ?? 0));
  const body = document.getElementById("troubles");
  for (const trouble of part.troubles) {
    const row = document.createElement("tr");
    const cells = [(trouble.at_ns / 1e9).toFixed(3), trouble.type, trouble.f, trouble.node, trouble.error];
    for (const text of cells) {
      const cell = document.createElement("td");
      if (!row.children.length) cell.className = "number";
      cell.textContent = text;
      row.append(cell);
    }
    body.prepend(row);
  }
  while (body.children.length > TROUBLES) body.lastElementChild.remove();
  draw();
}

const source = new EventSource(place.dataset.follow);
source.addEventListener("part", (event) => {
  const state = document.getElementById("state");
  const text = "It is under way; this page follows it.";
  if (state.textContent !== text) state.textContent = text;
  tell(JSON.parse(event.data));
});
source.addEventListener("ended", (event) => {
  source.close();
  const part = JSON.parse(event.data);
  if (part.bytes) tell(part);
  const link = document.createElement("a");
  link.href = place.dataset.run;
  link.textContent = "what was found";
  document.getElementById("state").replaceChildren("It is over: ", link, ".");
});
source.addEventListener("error", () => put("state", "The server does not answer; trying again."));
