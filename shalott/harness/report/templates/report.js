"use strict";
(() => {
  const stages = [...document.querySelectorAll(".stage")];
  for (const copy of document.querySelectorAll("[data-copy]")) copy.addEventListener("click", async () => {
    const words = document.getElementById(copy.dataset.copy);
    try { await navigator.clipboard.writeText(words.textContent); copy.textContent = "copied"; }
    catch { getSelection().selectAllChildren(words); }
  });
  let reopened = [];
  addEventListener("beforeprint", () => {
    reopened = [...document.querySelectorAll("details:not([open])")];
    reopened.forEach(d => d.open = true);
  });
  addEventListener("afterprint", () => reopened.forEach(d => d.open = false));
  if (!stages.length) return;

  // All stages show the same stretch of the run; each has its own words for what is at the cursor.
  const kept = new Map();
  const read = id => {
    if (!kept.has(id)) kept.set(id, JSON.parse(document.getElementById(id).textContent));
    return kept.get(id);
  };
  const data = read("cursor-data");
  // The whole run is the load and what follows; what came before is seen by zooming out of it.
  const begin0 = Number(stages[0].dataset.begin), end = Number(stages[0].dataset.end), narrowest = Math.max(50, end / 2000);
  const all = selector => stages.flatMap(stage => [...stage.querySelectorAll(selector)]);
  const plots = all("svg.plot"), axes = all(".xaxis .track"), cursors = all(".cursor"), brushes = all(".brush");
  const readouts = stages.map(stage => stage.parentElement.querySelector(".readout"));
  const wholes = [...document.querySelectorAll("[data-zoom='0']")];
  const hints = readouts.map(readout => readout.innerHTML);
  let from = begin0, to = end, at = null, dragged = null;

  const place = (element, begin, finish) => {
    element.style.setProperty("--b", begin); element.style.setProperty("--e", finish);
  };
  const clock = (ms, step) => {
    if (ms >= 120000) {
      const minutes = Math.floor(ms / 60000), rest = (ms % 60000) / 1000;
      return rest ? `${minutes}:${rest.toFixed(step < 1000 ? 1 : 0).padStart(step < 1000 ? 4 : 2, "0")}` : `${minutes} min`;
    }
    return `${+(ms / 1000).toFixed(step < 10 ? 3 : 2)} s`;
  };
  function ticks() {
    const most = stages[0].clientWidth < 600 ? 4 : 9, span = to - from;
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 864e5];
    const step = steps.find(s => span / s <= most) || 864e5;
    for (const axis of axes) {
      axis.replaceChildren();
      for (let ms = Math.ceil(from / step) * step; ms <= to; ms += step) {
        const word = document.createElement("span");
        word.textContent = clock(ms, step); word.style.setProperty("--b", ms); axis.append(word);
      }
    }
  }
  function show(begin, finish) {
    let width = Math.min(end, Math.max(narrowest, finish - begin));
    from = Math.min(Math.max(0, begin), end - width); to = from + width;
    for (const stage of stages) { stage.style.setProperty("--x0", from); stage.style.setProperty("--w", to - from); }
    plots.forEach(p => p.setAttribute("viewBox", `${from} 0 ${to - from} 1000`));
    wholes.forEach(whole => { whole.disabled = from === begin0 && to === end; });
    ticks();
  }
  const zoom = factor => {
    const centre = at ?? (from + to) / 2, left = (centre - from) / (to - from);
    const width = (to - from) * factor;
    show(centre - left * width, centre + (1 - left) * width);
  };
  const covering = (stage, selector, ms) => [...stage.querySelectorAll(selector)].filter(bar =>
    parseFloat(bar.style.getPropertyValue("--b")) <= ms && ms < parseFloat(bar.style.getPropertyValue("--e")));
  const duration = us => us >= 1e6 ? `${(us / 1e6).toPrecision(3)} s` : us >= 1e3 ? `${(us / 1e3).toPrecision(3)} ms` : `${us} µs`;
  // The words of the run's own stage: rates, latencies, two masters.
  function told(stage, bucket) {
    const parts = [];
    for (const [f, series] of Object.entries(data.rates)) {
      const counts = Object.entries(series).filter(([, v]) => v[bucket]).map(([name, v]) => `${v[bucket]} ${name}`);
      parts.push(`${escaped(f)} <b>${counts.join(" + ") || "none"}</b>/s`);
    }
    if (data.p50[bucket] != null) parts.push(`p50 <b>${duration(data.p50[bucket])}</b>, p99 <b>${duration(data.p99[bucket])}</b>`);
    const torn = covering(stage, ".marks .at", at).map(mark => mark.closest(".group").querySelector(".name b").textContent);
    for (const queue of new Set(torn)) parts.push(`<b>two masters</b> of ${escaped(queue)}`);
    return parts;
  }
  // And of the consumers': deliveries, lag, who held what, what checkers found.
  function consumed(stage, bucket) {
    const own = read(stage.dataset.from), parts = [];
    const counts = Object.entries(own.deliveries).filter(([, v]) => v[bucket]).map(([name, v]) => `${v[bucket]} ${name}`);
    parts.push(`deliveries <b>${counts.join(" + ") || "none"}</b>/s`);
    const behind = Object.entries(own.lag).filter(([, v]) => v[bucket]).map(([name, v]) => `${escaped(name)} <b>${v[bucket]}</b>`);
    parts.push(`lag ${behind.join(", ") || "<b>none</b>"}`);
    parts.push(`<b>${covering(stage, ".tenures .held", at).length}</b> drawn consumers`);
    for (const found of covering(stage, ".tenures .finding", at)) parts.push(`<b>${escaped(found.title)}</b>`);
    return parts;
  }
  function point(ms) {
    at = Math.min(Math.max(ms, 0), end);
    if (at < from || at > to) show(at - (to - from) / 2, at + (to - from) / 2);
    cursors.forEach(cursor => { cursor.hidden = false; place(cursor, at, at); });
    const bucket = Math.floor(at / data.width);
    stages.forEach((stage, number) => {
      const parts = [`<b>${clock(at, data.width)}</b>`];
      for (const phase of covering(stage, ".phases .at", at)) parts.push(escaped(phase.textContent));
      for (const fault of covering(stage, ".faults .at", at)) parts.push(`<b>${escaped(fault.firstChild.textContent)}</b>`);
      parts.push(...(stage.dataset.from ? consumed : told)(stage, bucket));
      readouts[number].innerHTML = parts.join(" · ");
    });
  }
  const escaped = text => { const box = document.createElement("i"); box.textContent = text; return box.innerHTML; };
  const leave = () => {
    at = null; cursors.forEach(cursor => { cursor.hidden = true; });
    readouts.forEach((readout, number) => { readout.innerHTML = hints[number]; });
  };
  const time = event => {
    const box = plots[0].getBoundingClientRect();
    return from + (event.clientX - box.left) / box.width * (to - from);
  };

  for (const stage of stages) {
    stage.addEventListener("pointermove", event => {
      const ms = time(event);
      if (dragged !== null) { brushes.forEach(brush => { brush.hidden = false; place(brush, Math.min(dragged, ms), Math.max(dragged, ms)); }); }
      if (ms >= from && ms <= to) point(ms);
    });
    stage.addEventListener("pointerdown", event => {
      if (event.pointerType === "mouse" && event.button === 0 && time(event) >= from) {
        dragged = time(event); stage.setPointerCapture(event.pointerId);
      } else point(time(event));
    });
    stage.addEventListener("pointerup", event => {
      if (dragged === null) return;
      const ms = time(event), begin = Math.min(dragged, ms), finish = Math.max(dragged, ms);
      dragged = null; brushes.forEach(brush => { brush.hidden = true; });
      if (finish - begin > (to - from) / 100) show(begin, finish);
    });
    stage.addEventListener("pointerleave", () => { if (dragged === null && document.activeElement !== stage) leave(); });
    stage.addEventListener("dblclick", () => show(begin0, end));
    stage.addEventListener("blur", leave);
    // A screen reader reads the words of the stage that the keys move in, and no others.
    stage.addEventListener("focus", () => readouts.forEach((readout, number) =>
      readout.setAttribute("aria-live", stages[number] === stage ? "polite" : "off")));
    stage.addEventListener("keydown", event => {
      const step = Math.max(data.width, (to - from) / 100) * (event.shiftKey ? 10 : 1), here = at ?? (from + to) / 2;
      const keys = {
        ArrowLeft: () => point(here - step), ArrowRight: () => point(here + step),
        Home: () => point(from), End: () => point(to), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
        0: () => show(begin0, end), Escape: () => { show(begin0, end); leave(); },
      };
      if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { keys[event.key](); event.preventDefault(); }
    });
  }
  for (const button of document.querySelectorAll("[data-zoom]"))
    button.addEventListener("click", () => { const f = Number(button.dataset.zoom); f ? zoom(f) : show(begin0, end); });
  for (const link of document.querySelectorAll("a[data-from]"))
    link.addEventListener("click", () => {
      const begin = Number(link.dataset.from), finish = Number(link.dataset.to), margin = Math.max(1000, (finish - begin) * 0.5);
      show(begin - margin, finish + margin);
    });
  addEventListener("resize", ticks);
  document.querySelectorAll(".tools").forEach(tools => { tools.hidden = false; });
  show(begin0, end);
})();
