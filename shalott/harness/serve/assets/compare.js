// One cursor over both timelines: by mouse, or by the arrow keys.
const box = document.querySelector(".timelines");
const line = box.querySelector(".cursorline");
const readout = document.getElementById("readout");
const end = Number(box.dataset.end);
let at = 0;

function show(ms) {
  const drawn = box.querySelector("svg.drawn");
  if (!drawn) return;
  at = Math.min(Math.max(ms, 0), end);
  const plot = drawn.getBoundingClientRect(), whole = box.getBoundingClientRect();
  line.hidden = false;
  line.style.left = `${plot.left - whole.left + (at / end) * plot.width}px`;
  const told = [...box.querySelectorAll(".timeline")].map((each, number) => {
    const bars = [...each.querySelectorAll("rect")].filter((bar) => {
      const begin = bar.x.baseVal.value;
      return begin <= at && at < begin + bar.width.baseVal.value;
    });
    const words = bars.map((bar) => bar.querySelector("title")?.textContent).filter(Boolean);
    return `${"AB"[number]}: ${words.slice(0, 8).join("; ") || "nothing"}`;
  });
  readout.textContent = `${(at / 1000).toFixed(2)} s. ${told.join(" · ")}`;
}

box.addEventListener("pointermove", (event) => {
  const plot = box.querySelector("svg.drawn")?.getBoundingClientRect();
  if (plot && event.clientX >= plot.left) show(((event.clientX - plot.left) / plot.width) * end);
});
box.addEventListener("keydown", (event) => {
  const step = (end / 100) * (event.shiftKey ? 10 : 1);
  const keys = { ArrowLeft: -step, ArrowRight: step, Home: -end, End: end };
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  show(at + keys[event.key]);
});
