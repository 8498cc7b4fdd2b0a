/* dashboard/keys.js -- the API keys: which there are, and what they may. They are made and revoked by couponctl. */
import {zoneFor} from "./address.js";
import {getAll, session} from "./api.js";
import {el, replace, table} from "./dom.js";
import {number, plural, time} from "./format.js";
import {panel} from "./panel.js";

const MOST = 1000,
  SOON_MS = 14 * 24 * 3600 * 1000;

const ownId = () => session.key.split("_")[1];

/* Its badge, and when that began or ends. */
function standing({revoked_at: revoked, expires_at: expires}, now = Date.now()) {
  if (revoked) return ["ended", "Revoked", revoked];
  if (!expires) return ["active", "Valid", null];
  const left = Date.parse(expires) - now;

  if (left <= 0) return ["ended", "Expired", expires];
  return left < SOON_MS ? ["low", "Expires soon", expires] : ["active", "Valid until", expires];
}

function limits({coupons, networks, origins, rate}) {
  const parts = [
    coupons ? `coupons ${coupons}\u2026` : null,
    networks ? `from ${networks.join(", ")}` : null,
    origins ? `for pages of ${origins.join(", ")}` : null,
    rate ? `${plural(rate, "request")} per second` : null,
  ].filter(Boolean);

  return parts.length ? el("ul", {class: "changes"}, parts.map((part) => el("li", {}, part))) : "none";
}

function row(key, zone) {
  const [kind, text, at] = standing(key);

  return [
    [
      key.label || "no label",
      el("div", {class: "small id"}, key.id),
      key.id === ownId() ? el("div", {class: "small"}, "the key of this tab") : null,
    ],
    key.role,
    [el("span", {class: `badge ${kind}`}, text), at ? el("div", {class: "small"}, time(at, zone)) : null],
    limits(key),
    time(key.created_at, zone),
  ];
}

export function showKeys(main, parameters, signal) {
  const zone = zoneFor();
  const p = panel("API keys", {
    signal,
    every: 30,
    level: "h1",
    load: (s) => getAll("/coupons/-/keys", {}, MOST, s),
    draw(body, {items, more}) {
      replace(
        body,
        el("p", {class: "small"},
          "Secrets are not stored and cannot be shown. Create keys with ",
          el("code", {}, "couponctl keys create"),
          ", revoke them with ",
          el("code", {}, "couponctl keys revoke"),
          "."),
        table("API keys", ["Key", "Role", `State (${zone})`, "Limits", `Created (${zone})`], items.map((key) => row(key, zone)), "cards"),
        more ? el("p", {class: "small"}, `The newest ${number(MOST)}; there are more.`) : null,
      );
    },
  });

  replace(main, p.node);
}
