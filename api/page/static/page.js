import { api, ApiError, key } from "/page/api.js";
import { alertItem, deliveryList, element, time } from "/page/elements.js";

const POLL_MS = 2000;
const PAGE = 50;
const MOST_SHOWN = 500;
const FILTERS = [["All", ""], ["Active", "ACTIVE"], ["Triggered", "TRIGGERED"], ["Pending", "PENDING"], ["Paused", "PAUSED"],
  ["Cancelled", "CANCELLED"], ["Expired", "EXPIRED"]];
const $ = (id) => document.getElementById(id);

let filter = "";
let shown = PAGE;
let round = 0; // answers to an older question are dropped
const drawn = new Map(); // alert_id -> { text, item }
const open = new Map(); // alert_id -> its deliveries, shown
const known = new Map(); // alert_id -> status last seen

function complain(error) {
  if (error instanceof ApiError && error.status === 401) return leave(error.message);
  $("trouble").textContent = error.message;
  $("trouble").hidden = false;
}

async function attempt(work) {
  try {
    await work();
    $("trouble").hidden = true;
  } catch (error) {
    complain(error);
  }
}

const act = {
  cancel: (alert) => attempt(async () => { await api.cancel(alert.alert_id); await refresh(); }),
  pause: (alert) => attempt(async () => { await api.pause(alert.alert_id); await refresh(); }),
  resume: (alert) => attempt(async () => { await api.resume(alert.alert_id); await refresh(); }),
  deliveries: (alert) => attempt(async () => {
    if (open.has(alert.alert_id)) open.delete(alert.alert_id);
    else open.set(alert.alert_id, (await api.deliveries(alert.alert_id)).deliveries);
    await refresh();
  }),
};

async function readAlerts() {
  const found = [];
  let cursor = "";
  do {
    const page = await api.alerts(filter, cursor, Math.min(shown - found.length, MOST_SHOWN));
    found.push(...page.alerts);
    cursor = page.next_cursor;
  } while (cursor && found.length < shown);
  return { found, more: Boolean(cursor) };
}

function draw({ found, more }) {
  const list = $("alerts");
  const items = found.map((alert) => {
    const text = JSON.stringify([alert, open.get(alert.alert_id)]);
    const before = drawn.get(alert.alert_id);
    if (before && before.text === text) return before.item; // untouched items keep focus and animation
    const seen = known.get(alert.alert_id);
    const fresh = seen !== undefined && seen !== alert.status;
    const deliveries = open.has(alert.alert_id) ? deliveryList(open.get(alert.alert_id)) : null;
    const item = alertItem(alert, act, fresh, deliveries);
    drawn.set(alert.alert_id, { text, item });
    return item;
  });
  for (const alert of found) known.set(alert.alert_id, alert.status);
  const same = items.length === list.children.length && items.every((item, i) => list.children[i] === item);
  if (!same) list.replaceChildren(...items);
  const present = new Set(found.map((alert) => alert.alert_id));
  for (const id of drawn.keys()) if (!present.has(id)) drawn.delete(id);
  $("empty").hidden = found.length > 0;
  $("empty").textContent = filter ? "None of these." : "No alerts yet. Make the first one: it tells you once, and shows its evidence.";
  $("more").hidden = !more || shown >= MOST_SHOWN;
}

function drawStatus(status) {
  const feeds = status.feeds.map((feed) => {
    const waits = !feed.frontier || feed.gaps > 0;
    const text = feed.frontier ? `${feed.feed}: final up to ${time(feed.frontier)}` : `${feed.feed}: no prices yet`;
    return element("span", { classes: waits ? "waits" : "", text });
  });
  const quota = element("b", { text: `${status.owner.name}: ${status.owner.live_alerts.toLocaleString()} live` });
  $("feeds").replaceChildren(...feeds, quota);
}

async function refresh() {
  const asked = ++round;
  for (const id of open.keys()) open.set(id, (await api.deliveries(id)).deliveries);
  const [alerts, status] = await Promise.all([readAlerts(), api.status()]);
  if (asked !== round || !key.get()) return;
  draw(alerts);
  drawStatus(status);
}

async function poll() {
  if (key.get() && !document.hidden) await attempt(refresh);
  setTimeout(poll, POLL_MS);
}

async function drawChannels() {
  const { channels } = await api.channels();
  const items = channels.map((channel) => element("li", {},
    element("span", { text: channel.address }),
    element("button", { classes: "quiet", type: "button", text: "Remove", "aria-label": `Remove ${channel.address}`,
      click: () => attempt(async () => { await api.deleteChannel(channel.channel_id); await drawChannels(); }) })));
  $("channels").replaceChildren(...(items.length ? items : [element("li", {}, element("span", { classes: "hint", text: "Nowhere yet." }))]));
}

function drawFilters() {
  $("filters").replaceChildren(...FILTERS.map(([text, status]) =>
    element("button", { type: "button", text, "aria-pressed": String(status === filter),
      click: () => { filter = status; shown = PAGE; drawFilters(); attempt(refresh); } })));
}

function requestFrom(form) {
  const value = (name) => form.elements[name].value.trim();
  const common = { symbol: value("symbol"), note: value("note") };
  if (value("kind") === "price") return { ...common, kind: "price", direction: value("price-direction"), target: value("target") };
  return { ...common, kind: "change", window: value("window"), direction: value("change-direction"), threshold_percent: value("percent") };
}

let submission = { text: "", key: "" };

$("create").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.currentTarget;
  const button = form.querySelector("button");
  const body = requestFrom(form);
  const text = JSON.stringify(body);
  if (submission.text !== text) {
    // Not randomUUID: that one exists only where the page came over HTTPS or from this machine.
    const random = crypto.getRandomValues(new Uint32Array(4));
    submission = { text, key: Array.from(random, (part) => part.toString(16).padStart(8, "0")).join("") };
  }
  button.disabled = true;
  $("created").textContent = "Creating…";
  attempt(async () => {
    try {
      const alert = await api.create(body, submission.key);
      submission = { text: "", key: "" };
      $("created").textContent = `#${alert.alert_id} on ${alert.symbol} is ${alert.status.toLowerCase()}.`;
      form.elements.note.value = "";
      await refresh();
    } catch (error) {
      $("created").textContent = error.message;
      if (error.status !== 422) throw error;
    } finally {
      button.disabled = false;
    }
  });
});

for (const radio of document.querySelectorAll("input[name=kind]")) {
  radio.addEventListener("change", () => {
    const price = radio.form.elements.kind.value === "price";
    $("price-fields").hidden = !price;
    $("change-fields").hidden = price;
  });
}

let suggesting = 0;
$("create").elements.symbol.addEventListener("input", (event) => {
  clearTimeout(suggesting);
  const prefix = event.target.value.trim();
  suggesting = setTimeout(() => suggest(prefix), 150);
});

async function suggest(prefix) {
  try {
    const { instruments } = await api.instruments(prefix);
    $("symbols").replaceChildren(...instruments.map(({ symbol }) => element("option", { value: symbol })));
  } catch { /* the field works without suggestions */ }
}

$("add-channel").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.currentTarget;
  const address = form.elements.address.value.trim();
  attempt(async () => {
    const webhook = address.includes("://");
    const made = await api.addChannel(webhook ? { kind: "webhook", url: address } : { kind: "email", address });
    form.reset();
    $("secret").hidden = !made.secret;
    $("secret").textContent = made.secret ? `Signing secret, shown this once: ${made.secret}` : "";
    await drawChannels();
  });
});

$("more").addEventListener("click", () => { shown = Math.min(shown + PAGE, MOST_SHOWN); attempt(refresh); });

$("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set($("key").value.trim());
  $("key").value = "";
  enter();
});

$("leave").addEventListener("click", () => leave(""));

function enter() {
  $("entrance").hidden = true;
  $("desk").hidden = $("leave").hidden = false;
  drawFilters();
  attempt(async () => { await refresh(); await Promise.all([drawChannels(), suggest("")]); });
}

function leave(reason) {
  key.forget();
  round += 1;
  for (const kept of [drawn, open, known]) kept.clear();
  for (const id of ["alerts", "channels", "feeds", "symbols"]) $(id).replaceChildren();
  $("secret").textContent = $("created").textContent = "";
  $("secret").hidden = true;
  $("desk").hidden = $("leave").hidden = true;
  $("entrance").hidden = false;
  $("trouble").hidden = !reason;
  $("trouble").textContent = reason;
  $("key").focus();
}

if (key.get()) enter(); else leave("");
poll();
