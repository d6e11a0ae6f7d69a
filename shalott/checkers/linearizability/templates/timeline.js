"use strict";
(() => {
  const AXIS = 22, GUTTER = 64, LANE_MAX = 28, LANE_MIN = 9, FADE = 120, OK = 0, FAIL = 1, INFO = 2;
  const finite = (value, low, high) => Math.min(Math.max(value, low), high);
  const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
  const escaped = text => { const box = document.createElement("i"); box.textContent = text; return box.innerHTML; };

  // Times along the x axis: ranks, or the clock. A point between two events is between their clocks.
  function axes(data) {
    const n = data.call.length, last = Math.max(...[0], ...maxima(data.call, data.ret)) + 1;
    const first = n ? data.call[0] : 0;
    const order = { name: "order", call: data.call, ret: data.ret.map(r => r < 0 ? Infinity : r), low: first - 1, high: last, at: rank => rank,
      label: x => (Math.round(x) || 0).toLocaleString("en"), steps: [1, 2, 5] };
    if (!data.call_ns) return { order };
    const events = [];
    for (let i = 0; i < n; i++) {
      events.push([data.call[i], data.call_ns[i]]);
      if (data.ret[i] >= 0 && data.ret_ns[i] >= 0) events.push([data.ret[i], data.ret_ns[i]]);
    }
    events.sort((a, b) => a[0] - b[0]);
    for (let i = 1; i < events.length; i++) events[i][1] = Math.max(events[i][1], events[i - 1][1]);
    const ranks = events.map(e => e[0]), times = events.map(e => e[1]);
    const low = times[0], high = times[times.length - 1], margin = (high - low) / 50 + 1;
    const at = rank => {
      let a = 0, b = ranks.length - 1;
      if (rank <= ranks[0]) return times[0];
      if (rank >= ranks[b]) return times[b] + margin / 2;
      while (b - a > 1) { const middle = (a + b) >> 1; if (ranks[middle] <= rank) a = middle; else b = middle; }
      return times[a] + (times[b] - times[a]) * (rank - ranks[a]) / (ranks[b] - ranks[a]);
    };
    const clock = { name: "clock", call: data.call_ns, ret: data.ret.map((r, i) => r < 0 ? Infinity : Math.max(data.ret_ns[i], data.call_ns[i])), low: low - margin, high: high + margin, at,
      label: (x, step) => `${(x / 1e9).toFixed(finite(Math.ceil(9 - Math.log10(step || 1)), 0, 9))} s`, steps: [1, 2, 5] };
    return { order, clock };
  }
  function maxima(...columns) {
    return columns.map(column => { let most = 0; for (const x of column) if (x > most) most = x; return most; });
  }

  function timeline(root) {
    const data = JSON.parse(root.querySelector(".lin-data").textContent), n = data.call.length;
    const find = name => root.querySelector(name);
    const box = find(".lin-box"), scroll = find(".lin-scroll"), space = find(".lin-space"), canvas = find(".lin-canvas");
    const overview = find(".lin-overview"), tip = find(".lin-tip"), readout = find(".lin-readout"), orders = find(".lin-orders");
    const input = find("input"), hits = find(".lin-hits");
    const pen = canvas.getContext("2d", { alpha: true }), small = overview.getContext("2d");
    const every = axes(data), lanes = data.lanes.length;
    const role = new Array(n).fill(""), stuck = data.mine.find((op, k) => data.roles[k] === "stuck");
    data.mine.forEach((op, k) => { role[op] = data.roles[k]; });
    const focus = data.mine.length > 0 && data.mine.length < n;
    let axis = every.order, from = axis.low, to = axis.high, width = 0, height = 0, lane = LANE_MAX, colours = {};
    let hovered = -1, selected = -1, order = 0, step = Infinity, found = null, foundAt = -1, dirty = false, took = 0, label = [];

    // ---- colours and sizes -------------------------------------------------------------------
    function restyle() {
      const style = getComputedStyle(root);
      for (const name of ["ink", "soft", "line", "faint", "card", "ok", "info", "fail", "bad", "bad-wash", "master"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
      colours.font = style.fontFamily || "sans-serif";
      draw();
    }
    function resize() {
      const ratio = devicePixelRatio || 1;
      width = scroll.clientWidth;
      const room = Math.max(160, Math.min(innerHeight * 0.54, 560)) - AXIS;
      lane = finite(Math.floor(room / Math.max(lanes, 1)), LANE_MIN, LANE_MAX);
      const content = lanes * lane + AXIS + 6;
      height = Math.min(content, room + AXIS + 6);
      scroll.style.height = `${height}px`; space.style.height = `${content}px`;
      width = scroll.clientWidth;
      size(canvas, pen, width, height, ratio); size(overview, small, overview.clientWidth, 30, ratio);
      draw();
    }
    function size(element, context, w, h, ratio) {
      element.width = Math.round(w * ratio); element.height = Math.round(h * ratio);
      element.style.width = element === overview ? "100%" : `${w}px`; element.style.height = `${h}px`;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    function draw() { if (!dirty) { dirty = true; requestAnimationFrame(paint); } }

    // ---- the view ----------------------------------------------------------------------------
    const x = at => GUTTER + (at - from) / (to - from) * (width - GUTTER);
    const time = px => from + (px - GUTTER) / (width - GUTTER) * (to - from);
    const top = op => AXIS + data.lane[op] * lane - scroll.scrollTop;
    function show(begin, end) {
      const least = axis.name === "order" ? 4 : Math.max(100, (axis.high - axis.low) / 1e7);
      const wide = finite(end - begin, least, axis.high - axis.low);
      from = finite(begin, axis.low, axis.high - wide); to = from + wide; draw();
    }
    function zoom(factor, about) {
      const centre = about ?? (selected >= 0 && axis.call[selected] > from && axis.call[selected] < to ? axis.call[selected] : (from + to) / 2);
      show(centre - (centre - from) * factor, centre + (to - centre) * factor);
    }
    function showWindow() {
      if (!data.mine.length) return show(axis.low, axis.high);
      // What stands far off (a write of long ago) would squeeze the rest: the stuck part is shown.
      const ends = data.mine.map(op => [axis.call[op], finite(axis.ret[op], axis.call[op], prefixAt())]);
      let begin = Math.min(...ends.map(e => e[0])), end = Math.max(prefixAt(), ...ends.map(e => e[1]));
      const crowd = axis.call.filter(c => c >= begin && c <= end).length;
      if (crowd > 400 && stuck !== undefined) {
        const near = data.mine.filter(op => axis.ret[op] >= axis.call[stuck]).map(op => axis.call[op]);
        begin = Math.max(begin, Math.min(axis.call[stuck], ...near.sort((a, b) => a - b).slice(Math.floor(near.length / 4))));
      }
      const margin = Math.max((end - begin) * 0.06, axis.name === "order" ? 1.5 : 1);
      show(begin - margin, end + margin);
      if (stuck !== undefined) reveal(stuck);
    }
    const prefixAt = () => data.prefix === null ? axis.high - 1 : axis.at(data.prefix);
    function reveal(op) {
      const y = data.lane[op] * lane;
      if (y < scroll.scrollTop || y + lane > scroll.scrollTop + height - AXIS) scroll.scrollTop = y - (height - AXIS) / 2;
      const begin = axis.call[op], end = Math.min(axis.ret[op], begin + (to - from) / 2);
      if (end < from || begin > to) show((begin + end) / 2 - (to - from) / 2, (begin + end) / 2 + (to - from) / 2);
      draw();
    }

    // ---- painting ----------------------------------------------------------------------------
    const colour = op => role[op] === "stuck" ? colours.bad : data.type[op] === OK ? colours.ok : data.type[op] === INFO ? colours.info : colours.fail;
    function paint() {
      dirty = false;
      if (!width) return;
      const began = performance.now();
      pen.clearRect(0, 0, width, height);
      rows(); pen.save(); pen.beginPath(); pen.rect(GUTTER, 0, width - GUTTER, height); pen.clip();
      limit(); bars(); points(); pen.restore(); names(); ticks(); paintOverview();
      root.dataset.painted ||= String(performance.now());
      took = performance.now() - began;
    }
    function rows() {
      pen.fillStyle = colours.faint;
      for (let l = Math.floor(scroll.scrollTop / lane); l < lanes; l++) {
        const y = AXIS + l * lane - scroll.scrollTop;
        if (y > height) break;
        pen.globalAlpha = l % 2 ? 0.25 : 0.7; pen.fillRect(GUTTER, y, width - GUTTER, lane - 1);
      }
      pen.globalAlpha = 1;
    }
    function limit() {
      if (data.prefix === null) return;
      const at = x(prefixAt());
      if (at > width) return;
      pen.fillStyle = colours.card; pen.globalAlpha = 0.55; pen.fillRect(Math.max(at, GUTTER), AXIS, width, height); pen.globalAlpha = 1;
    }
    function bars() {
      const runs = new Array(lanes).fill(null), late = [], tails = new Map(), faint = focus || found ? 0.38 : 1;
      label = [];
      // Where bars are too narrow to tell apart, neighbours of one colour are drawn as one.
      const flush = l => {
        const run = runs[l]; runs[l] = null;
        if (run) { pen.globalAlpha = faint; pen.fillStyle = run.fill; const [above, tall] = body(run.y); pen.fillRect(run.begin, above, Math.max(1.2, run.end - run.begin), tall); }
      };
      for (let op = 0; op < n; op++) {
        if (axis.call[op] > to) break;
        if (axis.ret[op] < from) continue;
        if (role[op] !== "" || op === selected || op === hovered || (found && found.has(op))) { late.push(op); continue; }
        const y = top(op);
        if (y > height || y + lane < AXIS) continue;
        const begin = x(axis.call[op]), end = axis.ret[op] === Infinity ? begin + 10 : x(axis.ret[op]), fill = colour(op);
        if (axis.ret[op] === Infinity && begin < GUTTER - FADE) { tails.set(data.lane[op], fill); continue; }
        if (axis.ret[op] < Infinity && end - begin < 4) {
          const l = data.lane[op], run = runs[l];
          if (run && run.fill === fill && begin < run.end + 0.75) run.end = Math.max(end, begin + 1);
          else { flush(l); runs[l] = { begin, end: Math.max(end, begin + 1), y, fill }; }
        } else bar(op, begin, end, y, fill, faint);
      }
      for (let l = 0; l < lanes; l++) flush(l);
      pen.globalAlpha = 0.35;
      for (const [l, fill] of tails) tail(GUTTER, AXIS + (l + 1) * lane - scroll.scrollTop - (lane > 14 ? 3.5 : 1.5), fill);
      for (const op of late) {
        const y = top(op);
        if (y > height || y + lane < AXIS) continue;
        const begin = x(axis.call[op]), end = axis.ret[op] === Infinity ? begin + 10 : x(axis.ret[op]);
        bar(op, begin, end, y, colour(op), found && !found.has(op) ? 0.45 : 1);
      }
      write();
    }
    const body = y => { const tall = Math.max(3, lane - (lane > 14 ? 6 : 2)); return [y + (lane - tall) / 2 - 0.5, tall]; };
    function bar(op, begin, end, y, fill, alpha) {
      const [above, tall] = body(y);
      const left = Math.max(begin, GUTTER - 8), wide = Math.max(1.5, Math.min(end, width + 8) - left), open = axis.ret[op] === Infinity;
      pen.globalAlpha = alpha; pen.fillStyle = fill;
      if (open) crashed(begin, finite(following(op) - begin - 1, 3, FADE), above, tall, fill);
      else if (wide > 6) { pen.beginPath(); pen.roundRect(left, above, wide, tall, 3); pen.fill(); }
      else pen.fillRect(left, above, wide, tall);
      const special = role[op] === "stuck" || role[op] === "witness";
      if (special || op === selected || op === hovered || (found && found.has(op))) {
        pen.globalAlpha = 1; pen.lineWidth = op === selected || special ? 2 : 1.5; pen.strokeStyle = role[op] === "stuck" ? colours.bad : colours.ink;
        if (op === selected || op === hovered) pen.strokeStyle = colours.master;
        else if (found && found.has(op)) pen.strokeStyle = colours.ink;
        pen.beginPath(); pen.roundRect(left - 0.5, above - 0.5, Math.max(open ? 12 : 3, wide + 1), tall + 1, 3.5); pen.stroke();
      }
      pen.globalAlpha = 1;
      if (lane > 13 && (wide > 22 || open || (role[op] && role[op] !== "context"))) label.push([op, left, open ? left + 260 : left + wide, above, tall, alpha]);
    }
    // It may take effect at any later time: a body that fades, and a thin line to the end.
    function crashed(begin, length, above, tall, fill) {
      const fade = pen.createLinearGradient(begin, 0, begin + length, 0), alpha = pen.globalAlpha;
      fade.addColorStop(0, fill); fade.addColorStop(1, length < 20 ? fill : "transparent");
      pen.fillStyle = fade; pen.beginPath(); pen.roundRect(begin, above, length, tall, 3); pen.fill();
      pen.globalAlpha = alpha * 0.6; tail(Math.max(begin, GUTTER), above + tall, fill); pen.globalAlpha = alpha;
    }
    function tail(begin, y, fill) {
      pen.strokeStyle = fill; pen.lineWidth = 1.5; pen.setLineDash([5, 4]);
      pen.beginPath(); pen.moveTo(begin, y); pen.lineTo(width, y); pen.stroke(); pen.setLineDash([]);
    }
    const widths = new Map();
    function write() {
      pen.font = `${lane > 20 ? 12 : 10.5}px ${colours.font}`; pen.textBaseline = "middle"; pen.textAlign = "left";
      const dots = new Map(pointSpots().map(([op, px]) => [op, px]));
      for (let i = label.length - 1; i >= 0; i--) {
        const [op, left, right, above, tall, alpha] = label[i], limit = Math.min(right, axis.ret[op] === Infinity ? following(op) : right);
        const text = data.texts[data.text[op]], key = `${lane > 20}${text}`;
        if (!widths.has(key)) widths.set(key, pen.measureText(text).width);
        let start = Math.max(left, GUTTER) + 6;
        const dot = dots.get(op);
        if (dot !== undefined && dot > start - 12 && dot < start + widths.get(key) + 12) start = dot + 13;
        if (start + widths.get(key) > limit - 4) start = Math.max(left, GUTTER) + 6;
        pen.globalAlpha = Math.min(1, alpha + 0.35);
        if (start + widths.get(key) > limit - 4) { beside(op, text, widths.get(key), left, right, above + tall / 2 + 0.5); continue; }
        pen.fillStyle = role[op] === "stuck" ? (luminous(colours.bad) ? "#2a0a10" : "#fff") : axis.ret[op] === Infinity || alpha < 1 ? colours.ink : "#10202f";
        pen.fillText(text, start, above + tall / 2 + 0.5);
      }
      pen.globalAlpha = 1;
    }
    // What belongs to the window has its words outside the bar where it is too narrow for them.
    function beside(op, text, wide, left, right, y) {
      if (!role[op] || role[op] === "context") return;
      const end = axis.ret[op] === Infinity ? following(op) : right, ahead = before[op];
      const free = ahead < 0 ? GUTTER : axis.ret[ahead] === Infinity ? Math.max(GUTTER, x(axis.call[ahead]) + 16) : x(axis.ret[ahead]);
      pen.fillStyle = role[op] === "stuck" ? colours.bad : colours.ink;
      const behind = axis.ret[op] < Infinity ? Math.min(following(op), width) - end - 8 : 0, ahead_of = left - free - 8;
      if (behind > wide) pen.fillText(text, end + 5, y);
      else if (ahead_of > wide) pen.fillText(text, left - wide - 5, y);
      else if (Math.max(behind, ahead_of) > 48) { // too long for either side: as much of it as there is room for
        const part = fitted(text, Math.max(behind, ahead_of));
        pen.fillText(part, behind >= ahead_of ? end + 5 : left - pen.measureText(part).width - 5, y);
      }
    }
    function fitted(text, room) {
      let least = 0, most = text.length;
      while (most - least > 1) { const middle = (least + most) >> 1; if (pen.measureText(text.slice(0, middle) + "…").width <= room) least = middle; else most = middle; }
      return text.slice(0, least) + "…";
    }
    const luminous = hex => parseInt(hex.slice(1, 3), 16) * 0.3 + parseInt(hex.slice(3, 5), 16) * 0.6 + parseInt(hex.slice(5, 7), 16) * 0.1 > 150;
    const byLane = Array.from({ length: lanes }, () => []);
    const after = new Int32Array(n).fill(-1), before = new Int32Array(n).fill(-1); // of the lane
    for (let op = 0; op < n; op++) {
      const mine = byLane[data.lane[op]];
      if (mine.length) { before[op] = mine[mine.length - 1]; after[before[op]] = op; }
      mine.push(op);
    }
    function following(op) {
      const next = after[op];
      return next < 0 ? Infinity : x(axis.call[next]);
    }
    // Of the processes that share a lane, the name of the last in view.
    function last(l) {
      const mine = byLane[l];
      let a = 0, b = mine.length;
      while (b - a > 1) { const middle = (a + b) >> 1; if (axis.call[mine[middle]] <= to) a = middle; else b = middle; }
      return mine[a];
    }
    function names() {
      pen.fillStyle = colours.card; pen.fillRect(0, 0, GUTTER, height);
      pen.font = `${lane > 16 ? 11.5 : 9}px ${colours.font}`; pen.textAlign = "right"; pen.textBaseline = "middle";
      const every = lane < 11 ? Math.ceil(12 / lane) : 1;
      for (let l = 0; l < lanes; l += every) {
        const y = AXIS + l * lane - scroll.scrollTop + lane / 2;
        if (y < AXIS || y > height) continue;
        const mine = stuck !== undefined && data.lane[stuck] === l;
        pen.fillStyle = mine ? colours.bad : colours.soft;
        pen.fillText(String(data.process[mine ? stuck : last(l)]), GUTTER - 8, y);
      }
    }
    function ticks() {
      pen.fillStyle = colours.card; pen.fillRect(0, 0, width, AXIS);
      pen.font = `11px ${colours.font}`; pen.fillStyle = colours.soft; pen.textAlign = "left"; pen.textBaseline = "middle";
      pen.fillText("process", 0, AXIS / 2);
      const rough = (to - from) / Math.max(2, (width - GUTTER) / 110), power = 10 ** Math.floor(Math.log10(rough));
      const stride = Math.max(axis.name === "order" ? 1 : 0, (axis.steps.find(s => s * power >= rough) || 10) * power);
      pen.textAlign = "center"; pen.strokeStyle = colours.line; pen.lineWidth = 1;
      for (let at = Math.ceil(from / stride) * stride; at <= to; at += stride) {
        const px = Math.round(x(at)) + 0.5;
        if (px < GUTTER) continue;
        pen.beginPath(); pen.moveTo(px, AXIS - 4); pen.lineTo(px, AXIS); pen.stroke();
        if (px > GUTTER + 14 && px < width - 24) pen.fillText(axis.label(at, stride), px, AXIS / 2 - 1);
      }
      if (data.prefix === null) return;
      const px = Math.round(x(prefixAt())) + 0.5;
      if (px < GUTTER || px > width) return;
      pen.strokeStyle = colours.bad; pen.lineWidth = 1.5; pen.beginPath(); pen.moveTo(px, 2); pen.lineTo(px, height); pen.stroke();
      pen.fillStyle = colours.bad; pen.beginPath(); pen.moveTo(px - 5, 2); pen.lineTo(px + 5, 2); pen.lineTo(px, 10); pen.fill();
      const words = "the invalid prefix ends", wide = pen.measureText(words).width, right = px + wide + 12 < width;
      const begin = right ? px + 8 : px - 8 - wide;
      pen.fillStyle = colours.card; pen.fillRect(begin - 3, 0, wide + 6, AXIS - 5);
      pen.fillStyle = colours.bad; pen.textAlign = "left"; pen.fillText(words, begin, AXIS / 2 - 1);
    }

    // ---- the partial linearizations ----------------------------------------------------------
    // Each point lies within its operation's bar and after the one before it: between the latest
    // call so far and the earliest return still to come, in their middle, and ties spread out.
    function places() {
      const steps = data.linearizations[order].steps, end = (data.prefix ?? axis.high) + 0.5;
      const early = [], late = [];
      steps.forEach(([op], i) => { early[i] = Math.max(data.call[op], i ? early[i - 1] : -1); });
      for (let i = steps.length - 1; i >= 0; i--) {
        const ret = data.ret[steps[i][0]] < 0 ? end : data.ret[steps[i][0]];
        late[i] = Math.min(Math.max(ret, early[i]), i + 1 < steps.length ? late[i + 1] : Infinity);
      }
      const middle = early.map((e, i) => (e + late[i]) / 2), at = [];
      for (let i = 0; i < steps.length;) {
        let j = i;
        while (j < steps.length && middle[j] === middle[i]) j++;
        const low = Math.max(early[j - 1], i ? (middle[i - 1] + middle[i]) / 2 : -Infinity);
        const high = Math.min(late[i], j < steps.length ? (middle[i] + middle[j]) / 2 : Infinity);
        for (let k = i; k < j; k++) at.push(low + (high - low) * (k - i + 1) / (j - i + 1));
        i = j;
      }
      return at;
    }
    function pointSpots() {
      if (!data.linearizations.length) return [];
      const { steps } = data.linearizations[order];
      return places().slice(0, step).map((at, i) => [steps[i][0], x(axis.at(at)), top(steps[i][0]) + lane / 2 - 0.5]);
    }
    function points() {
      const spots = pointSpots(), spread = spots.length ? Math.abs(spots[spots.length - 1][1] - spots[0][1]) / spots.length : 0;
      const radius = spread < 2.5 && spots.length > 3 ? 2.5 : lane > 20 ? 8.5 : lane > 13 ? 6.5 : 3.5;
      pen.strokeStyle = colours.ink; pen.lineWidth = 1.2; pen.globalAlpha = 0.4; pen.beginPath();
      spots.forEach(([, px, py], i) => { if (i) pen.lineTo(px, py); else pen.moveTo(px, py); });
      pen.stroke(); pen.globalAlpha = 1;
      pen.font = `600 ${lane > 20 ? 10 : 8.5}px ${colours.font}`; pen.textAlign = "center"; pen.textBaseline = "middle";
      spots.forEach(([, px, py], i) => {
        if (px < GUTTER - 10 || px > width + 10 || py < AXIS - 10 || py > height + 10) return;
        pen.fillStyle = colours.ink; pen.beginPath(); pen.arc(px, py, i === spots.length - 1 ? radius + 1.5 : radius, 0, 7); pen.fill();
        if (radius > 5) { pen.fillStyle = colours.card; pen.fillText(String(i + 1), px, py + 0.5); }
      });
    }
    function listOrders() {
      const every = data.linearizations;
      orders.hidden = !every.length;
      if (!every.length) return;
      const { begin, before, steps, blocked } = every[order], shown = Math.min(step, steps.length);
      find(".lin-which").textContent = every.length > 1 ? `order ${order + 1} of ${every.length}` : "the only one";
      find(".lin-step").textContent = `${shown} of ${steps.length}`;
      const act = name => root.querySelector(`[data-do="${name}"]`);
      act("previous").disabled = act("next").disabled = every.length < 2;
      act("back").disabled = shown === 0; act("forth").disabled = shown === steps.length;
      const list = find(".lin-steps");
      list.replaceChildren(...steps.map(([op, state], i) => {
        const item = document.createElement("li"), button = document.createElement("button");
        item.className = i >= shown ? "later" : i === shown - 1 ? "now" : "";
        button.innerHTML = `<span class="number">${i + 1}</span><span>${escaped(data.texts[data.text[op]])}</span><span class="state">${escaped(state)}</span>`;
        button.title = `process ${data.process[op]}`;
        button.addEventListener("click", () => { step = i + 1; listOrders(); choose(op); });
        item.append(button); return item;
      }));
      const first = document.createElement("li"); first.className = "soft";
      first.textContent = begin + (before.length ? `, after ${before.map(op => data.texts[data.text[op]]).join(", ")}` : "");
      list.prepend(first);
      const now = list.querySelector(".now");
      if (now) list.scrollTop = now.offsetTop - list.offsetTop - list.clientHeight / 2;
      find(".lin-blocked").replaceChildren(...blocked.map(([op, why]) => {
        const item = document.createElement("li"); item.className = role[op];
        item.innerHTML = `<b>${escaped(data.texts[data.text[op]])}</b> <span class="soft">process ${data.process[op]}</span> ${escaped(why)}`; return item;
      }));
      draw();
    }
    function turn(by) { const m = data.linearizations.length; if (m) { order = (order + by + m) % m; step = Infinity; listOrders(); } }
    function go(by) {
      if (!data.linearizations.length) return;
      const steps = data.linearizations[order].steps;
      step = finite(Math.min(step, steps.length) + by, 0, steps.length); listOrders();
      if (step > 0) choose(steps[step - 1][0]);
    }

    // ---- one operation -----------------------------------------------------------------------
    function details(op, long) {
      const at = data.linearizations.length ? data.linearizations[order].steps.findIndex(s => s[0] === op) : -1;
      const stop = data.linearizations.length ? data.linearizations[order].blocked.find(b => b[0] === op) : undefined;
      const never = data.ret[op] < 0, seconds = ns => `${(ns / 1e9).toFixed(6)} s`;
      const when = data.call_ns ? `${seconds(data.call_ns[op])} – ${never || data.ret_ns[op] < 0 ? "never" : seconds(data.ret_ns[op])}` : "";
      const roles = { stuck: "stuck: no order explains its return", witness: "proves the violation", concurrent: "under way when the stuck one returned", earlier: "returned before; the proof needs it", context: "returned shortly before the window" };
      const rows = [
        ["outcome", ["ok", "fail: it did not happen", "info: nobody knows"][data.type[op]]],
        ["order", `${data.call[op].toLocaleString("en")} – ${never ? "never" : data.ret[op].toLocaleString("en")}`],
        ["clock", when], [data.place_name, data.place[op].toLocaleString("en")], ["role", roles[role[op]] || ""],
        ["takes effect", at >= 0 ? `as number ${at + 1} of the order shown` : ""],
      ].filter(row => row[1]);
      const head = `<b class="mono">${escaped(data.texts[data.text[op]])}</b> <span class="soft">process ${data.process[op]}</span>`;
      const why = stop ? escaped(stop[1]) : "";
      if (long) return `${head}<dl>${rows.map(([name, value]) => `<dt>${name}</dt><dd>${escaped(value)}</dd>`).join("")}</dl>${why ? `<div class="why">${why}</div>` : ""}`;
      return `${head} · ${rows.map(([name, value]) => `${name} ${escaped(value)}`).join(" · ")}${why ? ` · ${why}` : ""}`;
    }
    const hint = readout.innerHTML;
    function choose(op) { selected = op; readout.innerHTML = op < 0 ? hint : details(op, false); if (op >= 0) reveal(op); draw(); }
    function under(px, py) {
      const l = Math.floor((py - AXIS + scroll.scrollTop) / lane);
      if (py < AXIS || px < GUTTER || l < 0 || l >= lanes) return -1;
      let best = -1, distance = 4;
      for (const op of byLane[l]) {
        const begin = x(axis.call[op]), end = axis.ret[op] === Infinity ? Math.max(begin + 26, Math.min(width, following(op) - 2)) : x(axis.ret[op]);
        const away = px < begin ? begin - px : px > end ? px - end : 0;
        if (away < distance || (away === 0 && best >= 0)) { best = op; distance = away; }
        if (begin > px + 4) break;
      }
      return best;
    }
    function hover(op, px, py) {
      if (op !== hovered) { hovered = op; tip.hidden = op < 0; if (op >= 0) tip.innerHTML = details(op, true); draw(); }
      if (op < 0) return;
      const outer = box.getBoundingClientRect(), inner = scroll.getBoundingClientRect();
      const left = inner.left - outer.left + px, below = inner.top - outer.top + py;
      tip.style.left = `${left + 14 + tip.offsetWidth > outer.width ? Math.max(4, left - tip.offsetWidth - 10) : left + 14}px`;
      tip.style.top = `${below + 16}px`;
    }

    // ---- search ------------------------------------------------------------------------------
    function search(text) {
      const wanted = text.trim().toLowerCase();
      found = null; foundAt = -1;
      if (wanted) {
        const words = wanted.split(/[\s→]+/).filter(Boolean);
        const fits = data.texts.map(t => {
          const own = t.toLowerCase().split(/[\s→[\](){},:]+/);
          return words.every(w => own.some(o => /^-?\d+$/.test(w) ? o === w : o.startsWith(w)));
        });
        found = new Set(); for (let op = 0; op < n; op++) if (fits[data.text[op]]) found.add(op);
      }
      hits.textContent = !found ? "" : found.size ? count(found.size, "operation") : "none";
      draw();
    }
    function nextFound(by) {
      if (!found || !found.size) return;
      const list = [...found]; foundAt = (foundAt + by + list.length) % list.length;
      hits.textContent = `${foundAt + 1} of ${list.length}`; choose(list[foundAt]);
    }

    // ---- the overview ------------------------------------------------------------------------
    let density = null;
    function paintOverview() {
      const w = overview.clientWidth, span = axis.high - axis.low, column = at => (at - axis.low) / span * w;
      if (!w) return;
      if (!density || density.axis !== axis || density.counts.length !== Math.ceil(w / 2)) {
        const counts = new Float64Array(Math.ceil(w / 2));
        for (let op = 0; op < n; op++) counts[finite(Math.floor(column(axis.call[op]) / 2), 0, counts.length - 1)]++;
        density = { axis, counts, most: Math.max(1, ...counts) };
      }
      small.clearRect(0, 0, w, 30);
      small.fillStyle = colours.ok; small.globalAlpha = 0.75;
      density.counts.forEach((c, i) => { const tall = c ? 3 + 21 * c / density.most : 0; small.fillRect(i * 2, 30 - tall, 1.6, tall); });
      small.globalAlpha = 1; small.fillStyle = colours.ink;
      for (const op of data.mine) if (role[op] !== "stuck") small.fillRect(column(axis.call[op]) - 0.5, 0, 1, 5);
      if (stuck !== undefined) { small.fillStyle = colours.bad; small.fillRect(column(prefixAt()) - 1, 0, 2.5, 30); }
      small.strokeStyle = colours.master; small.lineWidth = 1.5; small.fillStyle = colours.master;
      const left = column(from), right = Math.max(left + 4, column(to));
      small.globalAlpha = 0.12; small.fillRect(left, 0, right - left, 30); small.globalAlpha = 1; small.strokeRect(left + 0.75, 0.75, right - left - 1.5, 28.5);
    }
    function jump(event) {
      const bounds = overview.getBoundingClientRect(), at = axis.low + (event.clientX - bounds.left) / bounds.width * (axis.high - axis.low);
      show(at - (to - from) / 2, at + (to - from) / 2);
    }
    overview.addEventListener("pointerdown", event => { overview.setPointerCapture(event.pointerId); jump(event); });
    overview.addEventListener("pointermove", event => { if (event.buttons & 1) jump(event); });

    // ---- hands -------------------------------------------------------------------------------
    let drag = null;
    const local = event => { const bounds = scroll.getBoundingClientRect(); return [event.clientX - bounds.left, event.clientY - bounds.top]; };
    scroll.addEventListener("pointerdown", event => {
      const [px, py] = local(event);
      if (event.button !== 0 || px > scroll.clientWidth) return;
      drag = { px, py, from, to, moved: false, top: scroll.scrollTop }; if (event.pointerType === "mouse") scroll.setPointerCapture(event.pointerId);
    });
    scroll.addEventListener("pointermove", event => {
      const [px, py] = local(event);
      if (!drag) return hover(under(px, py), px, py);
      if (Math.abs(px - drag.px) + Math.abs(py - drag.py) > 3) drag.moved = true;
      if (!drag.moved) return;
      hover(-1); scroll.classList.add("dragging");
      const shift = (px - drag.px) / (width - GUTTER) * (drag.to - drag.from);
      show(drag.from - shift, drag.to - shift);
      if (event.pointerType === "mouse") scroll.scrollTop = drag.top - (py - drag.py);
    });
    scroll.addEventListener("pointerup", event => {
      const [px, py] = local(event);
      if (drag && !drag.moved) choose(under(px, py));
      drag = null; scroll.classList.remove("dragging");
    });
    scroll.addEventListener("pointercancel", () => { drag = null; scroll.classList.remove("dragging"); });
    scroll.addEventListener("pointerleave", () => hover(-1));
    scroll.addEventListener("scroll", draw);
    scroll.addEventListener("dblclick", event => zoom(0.4, time(local(event)[0])));
    scroll.addEventListener("wheel", event => {
      const wide = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (event.ctrlKey || event.metaKey) { zoom(Math.exp(finite(event.deltaY, -200, 200) / 300), time(local(event)[0])); hover(-1); }
      else if (wide || event.shiftKey) { const by = (wide ? event.deltaX : event.deltaY) / width * (to - from); show(from + by, to + by); }
      else return;
      event.preventDefault();
    }, { passive: false });
    function along(by) {
      if (selected < 0) return choose(stuck ?? 0);
      const pool = found && found.size ? [...found] : null;
      if (!pool) return choose(finite(selected + by, 0, n - 1));
      const here = pool.findIndex(op => op >= selected);
      choose(pool[finite((here < 0 ? pool.length : here) + (pool[here] === selected || by < 0 ? by : 0), 0, pool.length - 1)]);
    }
    function across(by) {
      if (selected < 0) return choose(stuck ?? 0);
      for (let l = data.lane[selected] + by; l >= 0 && l < lanes; l += by) {
        if (!byLane[l].length) continue;
        const near = byLane[l].reduce((best, op) => Math.abs(data.call[op] - data.call[selected]) < Math.abs(data.call[best] - data.call[selected]) ? op : best);
        return choose(near);
      }
    }
    const keys = {
      ArrowLeft: () => along(-1), ArrowRight: () => along(1), ArrowUp: () => across(-1), ArrowDown: () => across(1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(axis.low, axis.high), w: showWindow,
      s: () => { if (stuck !== undefined) choose(stuck); }, ",": () => go(-1), ".": () => go(1), "[": () => turn(-1), "]": () => turn(1),
      Home: () => choose(0), End: () => choose(n - 1), PageUp: () => show(from - (to - from), from), PageDown: () => show(to, to + (to - from)),
      Escape: () => { choose(-1); input.value = ""; search(""); },
    };
    scroll.addEventListener("keydown", event => {
      if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { keys[event.key](); event.preventDefault(); }
    });
    input.addEventListener("input", () => search(input.value));
    input.addEventListener("keydown", event => {
      if (event.key === "Enter") { nextFound(event.shiftKey ? -1 : 1); event.preventDefault(); }
      if (event.key === "Escape") { input.value = ""; search(""); }
    });
    const doings = { window: showWindow, all: () => show(axis.low, axis.high), in: () => zoom(0.5), out: () => zoom(2), previous: () => turn(-1), next: () => turn(1), back: () => go(-1), forth: () => go(1) };
    for (const button of root.querySelectorAll("[data-do]")) button.addEventListener("click", doings[button.dataset.do]);
    const choices = [...root.querySelectorAll("[data-axis]")];
    if (!every.clock) find(".lin-axis").hidden = true;
    for (const button of choices) button.addEventListener("click", () => {
      axis = every[button.dataset.axis]; choices.forEach(b => b.setAttribute("aria-pressed", String(b === button))); showWindow(); draw();
    });

    box.hidden = false;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
    new ResizeObserver(resize).observe(box);
    resize(); listOrders(); showWindow(); restyle(); paint();
    if (!focus) root.querySelector("[data-do=window]").hidden = true;
    // For the tests, which see no canvas: where an operation is drawn, and what is in view.
    root.timeline = {
      view: () => ({ from, to, axis: axis.name, operations: n, lanes, selected, hovered, order, step, stuck, found: found ? found.size : null, paint_ms: took }),
      spot: op => { const bounds = canvas.getBoundingClientRect(); return { x: bounds.left + (x(axis.call[op]) + Math.min(x(axis.ret[op]), x(axis.call[op]) + 20)) / 2, y: bounds.top + top(op) + lane / 2 }; },
    };
  }
  const begin = () => { for (const root of document.querySelectorAll(".lin:not([data-ready])")) { root.dataset.ready = "1"; timeline(root); } };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin); else begin();
})();
