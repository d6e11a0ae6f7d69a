// Each node's view of the cluster and of every queue, side by side: what a partition is read from.
import { get } from "./api.js";
import { count, h, table } from "./dom.js";
import { banner } from "./overview.js";

// What ``view``'s node thinks of ``name``.
function sight(view, name) {
  if (view.node === name) return view.status === "running" ? "itself" : view.status;
  if (view.partitions.includes(name)) return "ran apart";
  if (view.running_nodes.includes(name)) return "runs with it";
  return view.linked.includes(name) ? "linked, not running with it" : "does not see it";
}

const isWell = (view, name) => ["itself", "runs with it"].includes(sight(view, name));

const claimOf = (view, group) => view.claims?.find((each) => each.group === group);

export function conflicts(views, group) {
  const told = views.filter((view) => view.reachable).map((view) => claimOf(view, group));
  const masters = told.filter((claim) => claim?.role === "master");
  const found = [];
  if (masters.length > 1) {
    const counts = masters.map((claim) => claim.messages);
    found.push(`${masters.length} masters`);
    if (new Set(counts).size > 1)
      found.push(`${Math.max(...counts) - Math.min(...counts)} messages apart`);
  }
  if (told.length && !masters.length) found.push("no master within reach");
  if (told.some((claim) => !claim)) found.push("not everybody knows it");
  return found;
}

const LIVE = { master: "master", mirror: "mirror", none: "no process" };

function standing(view, group) {
  if (!view.reachable) return h("span", { class: "soft" }, "unreachable");
  const claim = claimOf(view, group);
  if (!claim) return h("span", { class: "bad" }, "no such queue");
  const others = claim.role === "master"
    ? `, mirrors ${claim.mirrors.join(", ") || "none"}` : `, master ${claim.master || "none"}`;
  return [
    h("b", {}, LIVE[claim.role]), claim.role === "none" ? "" : ` ${count(claim.messages)} messages`,
    claim.role === "mirror" && !claim.synchronised.includes(view.node)
      ? h("span", { class: "bad" }, " unsynchronised") : "",
    others, claim.state === "running" ? "" : `, ${claim.state}`,
  ];
}

export const cluster = {
  title: "Cluster views",
  load: () => get("shalott", "views"),
  render({ views }) {
    const names = views.map((each) => each.node);
    const groups = [...new Set(views.flatMap((view) =>
      (view.claims ?? []).map((each) => each.group)))].sort();
    return [
      h("h1", {}, "Each node's view of the cluster"),
      banner(views),
      h("h2", {}, "Who sees whom"),
      table("Who sees whom", [
        { label: "Asked", cell: (view) => h("b", {}, view.node) },
        ...names.map((name) => ({
          label: name,
          cell: (view) => (view.reachable ? sight(view, name)
            : h("span", { class: "soft" }, "unreachable from here")),
          wrong: (view) => view.reachable && !isWell(view, name),
        })),
      ], views),
      h("h2", {}, "What each node has of each queue"),
      table("Queues by node", [
        { label: "Queue", cell: (group) => h("b", {}, group) },
        ...views.map((view) => ({
          label: view.node,
          cell: (group) => h("span", {}, standing(view, group)),
          wrong: (group) => claimOf(view, group)?.role === "master"
            && conflicts(views, group).some((each) => each.endsWith("masters")),
        })),
        { label: "Together", cell: (group) => {
          const found = conflicts(views, group);
          return found.length ? h("span", { class: "bad" }, found.join(", ")) : "one master";
        } },
      ], groups, "There are no queues."),
    ];
  },
};
