// One queue's GM ring: members, who stands in for whom, and what is on its way round.
import { get } from "./api.js";
import { columns, count, h, s, table } from "./dom.js";
import { hrefOf } from "./queues.js";

const WIDTH = 640, HEIGHT = 440, RADIUS = 150, MEMBER = 46, TOKENS_MAX = 6;
const CENTRE = { x: WIDTH / 2, y: HEIGHT / 2 };

// Clockwise from the top: to the right of a member is the next one.
const angle = (at, of) => (2 * Math.PI * at) / of - Math.PI / 2;
const spot = (turn, radius = RADIUS) =>
  ({ x: CENTRE.x + radius * Math.cos(turn), y: CENTRE.y + radius * Math.sin(turn) });

const nodeOf = (id) => id.replace(/^\{\d+,<(.*)\.\d+\.\d+>\}$/, "$1");

function arcs(order) {
  if (order.length < 2) return null;
  const gap = (MEMBER + 8) / RADIUS;
  return order.map((_, at) => {
    const from = spot(angle(at, order.length) + gap), to = spot(angle(at + 1, order.length) - gap);
    return s("path", { class: "link", "marker-end": "url(#arrow)",
      d: `M${from.x},${from.y} A${RADIUS},${RADIUS} 0 0 1 ${to.x},${to.y}` });
  });
}

function bubble(id, at, order, nodes) {
  const { x, y } = spot(angle(at, order.length));
  const node = nodes.find((each) => each.node === nodeOf(id));
  const member = node?.member?.id === id ? node.member : null;
  const role = member?.role ?? (node?.reachable ? "no answer" : "unreachable");
  return s("g", { "data-member": id },
    s("circle", { class: `member ${member ? member.role : "away"}`, cx: x, cy: y, r: MEMBER }),
    s("text", { x, y: y - 4 }, nodeOf(id)),
    s("text", { class: "soft", x, y: y + 12 }, role),
    member?.aliases.length ? s("text", { class: "soft", x, y: y + MEMBER + 14 },
      `stands in for ${member.aliases.map(nodeOf).join(", ")}`) : null);
}

// On the way from the last member that it has passed to the next one.
function tokens(flights, order) {
  const seen = new Map();
  return flights.map((flight) => {
    const last = flight.passed.at(-1) ?? flight.publisher;
    const at = Math.max(order.indexOf(last), 0);
    const earlier = seen.get(at) ?? 0;
    seen.set(at, earlier + 1);
    if (earlier >= TOKENS_MAX) return null;
    const { x, y } = spot(angle(at + 0.5, order.length), RADIUS + earlier * 25 - 10);
    return s("g", { class: "flight" },
      s("title", {}, `${flight.phase} ${flight.number} of ${nodeOf(flight.publisher)}`),
      s("circle", { class: flight.phase, cx: x, cy: y, r: 12 }),
      s("text", { class: "token", x, y: y + 4 }, String(flight.number)));
  });
}

function drawing({ members: order, in_flight: flights }, nodes) {
  const label = `Ring of ${order.length} members, ${flights.length} messages on their way`;
  return s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4,
      markerWidth: 8, markerHeight: 8, orient: "auto" },
    s("path", { class: "link", d: "M0,0 L8,4 L0,8" }))),
    arcs(order),
    order.map((id, at) => bubble(id, at, order, nodes)),
    tokens(flights, order));
}

const said = (pub) => `${pub.number} ${pub.kind}${pub.bytes == null ? "" : ` "${pub.text}"`}`;
const pending = (each) => each.pending_ack.map(said).join(", ")
  + (each.pending_count > each.pending_ack.length ? `, … ${each.pending_count} in all` : "");

function ofNode(node) {
  if (!node.reachable)
    return [h("h2", {}, node.node), h("p", { class: "bad" }, "Unreachable from here: ", node.reason)];
  const { member } = node;
  if (!member || member.id === null) return [
    h("h2", {}, node.node), h("p", { class: node.silent ? "bad" : "soft" }, node.silent
      ? "Its process gives no answer." : member ? "The queue has no ring here."
        : "It has no process of this queue."),
  ];
  return [
    h("h2", {}, `${node.node}: ${member.role}`),
    h("p", {}, `Member ${member.id}, view ${member.version}. Left: ${member.left ?? "?"}. Right: `,
      `${member.right ?? "?"}. Aliases: ${member.aliases.join(", ") || "none"}. `,
      member.buffer.length ? `Not sent yet: ${member.buffer.map(said).join(", ")}.` : ""),
    table(`What ${node.node} holds`, columns(
      ["id", (each) => each.id],
      ["last_pub", (each) => each.last_pub, true],
      ["last_ack", (each) => each.last_ack, true],
      ["pending_ack", (each) => pending(each) || "none"],
    ), member.publishers, "Its left neighbour has told it nothing yet."),
  ];
}

export const ring = {
  title: "Ring",
  load: (vhost, name) => get("shalott", "queues", vhost, name, "ring"),
  render(told) {
    return [
      h("h1", {}, "Ring of ", h("a", { href: hrefOf("queue", { vhost: told.vhost,
        name: told.queue }) }, told.queue)),
      told.rings.length > 1 ? h("p", { class: "bad" },
        `The queue has ${told.rings.length} rings: the nodes run apart.`) : null,
      told.rings.length ? told.rings.map((each) => drawing(each, told.nodes))
        : h("p", { class: "soft" }, "Nobody within reach is in a ring of this queue."),
      h("h2", {}, "On their way round"),
      table("On their way round", columns(
        ["Message", (each) => each.number, true],
        ["id", (each) => each.publisher],
        ["What", (each) => (each.bytes == null ? each.kind : `${each.kind} "${each.text}"`)],
        ["Round", (each) => (each.phase === "pub" ? "pub, the first" : "ack, the second")],
        ["Passed", (each) => each.passed.map(nodeOf).join(" → ")],
        ["Kept by", (each) => each.held_by.map(nodeOf).join(", ")],
      ), told.rings.flatMap((each) => each.in_flight), "Nothing: every broadcast has come home and is acknowledged."),
      told.nodes.map((each) => h("section", { "aria-label": count(each.node) }, ofNode(each))),
    ];
  },
};
