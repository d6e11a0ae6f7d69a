// The API of the node that serves this page. Name and password are kept as long as the tab is open.
const KEY = "shalott.login";

export class Refused extends Error {}

export const path = (...segments) => "/api/" + segments.map(encodeURIComponent).join("/");

export function logIn(name, password) {
  const text = new TextEncoder().encode(`${name}:${password}`);
  sessionStorage.setItem(KEY, btoa(String.fromCharCode(...text)));
}

export const logOut = () => sessionStorage.removeItem(KEY);

export async function ask(method, where, body) {
  const token = sessionStorage.getItem(KEY);
  if (token === null) throw new Refused("Log in");
  const answer = await fetch(where, {
    method,
    // Without the browser's own: it would put up its dialog when a password is wrong.
    credentials: "omit",
    headers: { Authorization: `Basic ${token}`, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.status === 401) {
    logOut();
    throw new Refused("Login failed");
  }
  const text = await answer.text();
  if (!answer.ok) {
    let reason = `${method} ${where}: ${answer.status}`;
    try { reason = JSON.parse(text).reason ?? reason; } catch { /* it is not JSON */ }
    throw new Error(reason);
  }
  return text ? JSON.parse(text) : null;
}

export const get = (...segments) => ask("GET", path(...segments));
