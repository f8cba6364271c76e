// What the reader chose: the run shown, the filters (both kept in the address's hash), the zoom, light or dark.

const HASH_KEYS = ["policy", "q", "kind", "loop", "target", "events", "type"];
const choice = Object.fromEntries(HASH_KEYS.map((key) => [key, ""]));

/** Takes the choices from "#q=scale&kind=Launch". A hash without "=" is an ordinary link to a section. */
function readHash() {
  const hash = location.hash.slice(1);
  if (!hash.includes("=")) return false;
  const given = new URLSearchParams(hash);
  for (const key of HASH_KEYS) choice[key] = given.get(key) || "";
  return true;
}

function choose(changes) {
  Object.assign(choice, changes);
  const kept = HASH_KEYS.filter((key) => choice[key]).map((key) => [key, choice[key]]);
  const hash = new URLSearchParams(kept).toString();
  if (location.protocol === "about:") return; // within a page of others, where it has no address of its own
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

/** The part of the run in view, in seconds, shared by every chart and the heat map. */
const view = {
  min: 0, max: 1, full: [0, 1], watchers: [],
  set(min, max) {
    this.min = Math.max(this.full[0], min);
    this.max = Math.min(this.full[1], max);
    byId("reset-zoom").hidden = this.min === this.full[0] && this.max === this.full[1];
    this.watchers.forEach((watch) => watch());
  },
  reset() { this.set(...this.full); },
  /** For another run: forgets who watches. */
  start(end) {
    this.full = [0, end];
    this.watchers = [];
    this.set(0, end);
  },
};

/** Colours of the theme for the canvases, read once per theme. */
const theme = {
  cache: new Map(),
  watchers: [],
  color(name) {
    if (!this.cache.has(name)) {
      this.cache.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    }
    return this.cache.get(name);
  },
  set(dark) {
    document.documentElement.classList.toggle("dark", dark);
    this.cache.clear();
    this.watchers.forEach((watch) => watch());
  },
  /** The colour `name` over the surface, `share` of it; both are #rrggbb. */
  mix(name, share) {
    const key = `${name} ${share.toFixed(2)}`;
    if (!this.cache.has(key)) {
      const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
      const [top, base] = [channels(this.color(name)), channels(this.color("--surface"))];
      const mixed = top.map((v, i) => Math.round(v * share + base[i] * (1 - share)));
      this.cache.set(key, `rgb(${mixed.join(" ")})`);
    }
    return this.cache.get(key);
  },
};

function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("tonnage-theme"); } catch { return null; } };
  system.addEventListener("change", (event) => { if (!stored()) theme.set(event.matches); });
  byId("theme").addEventListener("click", () => {
    const dark = !document.documentElement.classList.contains("dark");
    theme.set(dark);
    try { localStorage.setItem("tonnage-theme", dark ? "dark" : "light"); } catch { /* storage is off */ }
  });
}

const OWNER_COLORS = 8;
/** The colour of owner or service number `index` (from 0). */
const ownerColor = (index) => `--c${index % OWNER_COLORS}`;
/** Policies take their colours from the other end, so that they are not mistaken for services. */
const policyColor = (index) => `--c${[2, 3, 6, 4, 5, 7, 0, 1][index % OWNER_COLORS]}`;

/** The service levels of a run; one without traffic has none. */
const sloOf = (run) => run.slo ?? { ttft_s: 0, tpot_s: 0, grace_s: 0 };

const announce = (text) => { byId("announce").textContent = text; };
